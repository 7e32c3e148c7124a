"""Scratch: tiles of conv2d_padded/v3_wgmma on ResNet-18's layers."""
import json, os, statistics, sys, time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
import numpy as np
sys.path.insert(0, "benchmarks")
from products import build_plans
from mini_dnn import ops
from mini_dnn.device import open_device
from mini_dnn.running.execute import Execution, compile_others
from mini_dnn.ops.conv2d_padded import layers
from mini_dnn.variant import find

BASE = find("conv2d_padded/v3_wgmma")
G = BASE.plan.__globals__
Tile = G["Tile"]
BIG = [(192,128,4),(128,128,5),(128,128,2,1,2),(128,64,3,1,2),(128,64,4,1,2),(128,64,2,1,3),(256,64,4),(192,64,5),(64,64,5,1,2),(64,64,3,1,4),(128,256,3),(256,128,3),(64,128,3,1,2),(64,256,4)]
SMALL = [(64,64,5,1,2),(64,64,6,1,2),(64,64,5,2,2),(64,64,5,4,2),(64,64,5,8,2),(64,64,6,2,2),(64,128,4,2,1),(64,128,4,4,1),(64,128,4,8,1),(128,64,4,1,2),(128,64,4,2,1),(128,64,4,4,1),(128,128,4,2,1),(128,128,4,4,1),(192,64,4,1,1),(192,64,4,2,1),(128,128,5,1,1),(192,128,4,1,1),(64,64,10,8,1)]
NAMES = ["layer1.0.conv2","layer2.0.conv1","layer2.0.conv2","layer3.0.conv1","layer3.0.conv2","layer4.0.conv1","layer4.0.conv2"]
def cases():
    for batch in (1, 64, 8, 32):
        for name in NAMES:
            p = layers(batch)[name]
            for t in (SMALL if batch <= 8 else BIG + SMALL[2:4]+[(128,128,4,2,1)]):
                t = Tile(*t)
                if p.K % t.columns or p.taps // 64 < t.split: continue
                if t.split > 1 and t.tiles(p) * t.split > 132: continue
                if batch <= 8 and t.split == 1 and t.tiles(p) > 1000: continue
                if (t.columns//8) % t.split: continue
                yield batch, name, p, t
def planned(p, t, device):
    G["choose"] = lambda q: t
    return BASE.planned(p, device.max_shared_bytes)
def main():
    out = os.environ.get("OUT_DIR", "/tmp")
    only = sys.argv[1:] == ["build"]
    rows = []
    with closing(open_device("cuda")) as dev:
        if only:
            build_plans([planned(p, t, dev) for _, _, p, t in cases()], dev); return
        import torch
        torch.backends.cudnn.allow_tf32 = False
        rng = np.random.default_rng(0)
        pool = (rng.standard_normal(1 << 20, np.float32)).astype(np.float16)
        def fill(shape, scale):
            n = int(np.prod(shape)); r = np.resize(np.roll(pool, rng.integers(1 << 20)), n)
            return (r.astype(np.float32)*scale).astype(np.float16).reshape(shape)
        last = None; started = time.time()
        for batch, name, p, t in cases():
            if time.time() - started > float(os.environ.get("LIMIT", "80")): print("out of time"); break
            if p != last:
                arrays = {n: fill(a.shape, 1.0 if n != "w" else p.taps**-.5) for n, a in p.named("in","weight").items()}
                arrays["bias"] = rng.standard_normal(p.K).astype(np.float32)
                x = torch.from_numpy(arrays["x"]).cuda().permute(0,3,1,2).float()
                w = torch.from_numpy(arrays["w"]).cuda().permute(0,3,1,2).float()
                ref = torch.nn.functional.conv2d(x, w, torch.from_numpy(arrays["bias"]).cuda(), p.stride, p.padding)
                if p.residual: ref += torch.from_numpy(arrays["residual"]).cuda().permute(0,3,1,2).float()
                ref = ref.relu().permute(0,2,3,1).cpu().numpy(); last = p
            pl = planned(p, t, dev)
            try:
                module = dev.compile(pl.source, pl.defines)
                ex = Execution(pl, module, dev, others=compile_others(pl, dev))
                ex.fill()
                for n, v in arrays.items(): dev.copy_in(ex.buffers[n], v)
                ex.kernels(); dev.synchronize()
                y = np.empty(ref.shape, np.float16); dev.copy_out(ex.buffers["y"], y)
                err = float(np.linalg.norm(y.astype(np.float32)-ref)/np.linalg.norm(ref))
                N = 20
                def many():
                    for _ in range(N): ex.kernels()
                graph = dev.capture(many)
                graph.replay(); graph.replay()
                ts = []
                for _ in range(5):
                    a = dev.record(); graph.replay(); graph.replay(); b = dev.record()
                    ts.append(dev.elapsed_ms(a, b) * 1e3 / (2 * N))
                us = statistics.median(ts)
                row = {"batch": batch, "name": name, "tile": [t.rows,t.columns,t.stages,t.split,t.blocks], "us": us, "tflops": p.flops/us/1e6, "err": err, "ok": err < 1e-3, "model_us": t.clocks(p)/1755}
                graph.free()
            except Exception as e:
                row = {"batch": batch, "name": name, "tile": [t.rows,t.columns,t.stages,t.split,t.blocks], "error": str(e)[:300]}
                print(row, flush=True); rows.append(row)
                json.dump(rows, open(f"{out}/sweep.json","w")); 
                if "illegal" in str(e) or "launch" in str(e).lower(): raise
                continue
            finally:
                try: ex.free()
                except Exception: pass
            rows.append(row)
            if not row["ok"]: print("WRONG", row, flush=True)
        json.dump(rows, open(f"{out}/sweep.json","w"))
    best = {}
    for r in rows:
        if r.get("ok"):
            k = (r["batch"], r["name"])
            if k not in best or r["us"] < best[k]["us"]: best[k] = r
    for k, r in best.items(): print(k, r["tile"], f"{r['us']:.2f} us {r['tflops']:.0f} TFLOP/s err {r['err']:.1e} model {r['model_us']:.1f}")
main()
