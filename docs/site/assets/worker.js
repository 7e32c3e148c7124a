// Search in pages that are opened from a disk: browsers start no worker for file://, so a hidden frame stands for it.
// The theme's search script looks for `IFrameWorker` in its parent to find out where it is.
if (location.protocol === "file:") {
  const START = `
    postMessage = data => parent.postMessage(data, "*");
    importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
      const script = document.createElement("script");
      script.onload = done;
      script.onerror = () => failed(new Error("cannot load " + url));
      script.src = url;
      document.body.append(script);
    })), Promise.resolve());`;

  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = []; // messages of before the script has come
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentDocument;
      inside.open();
      inside.write(`<!doctype html><body><script>${START}<\/script></body>`);
      inside.close();
      const script = inside.createElement("script");
      script.src = new URL(url, location.href);
      script.onload = () => {
        const messages = this.waiting;
        this.waiting = null;
        for (const message of messages) this.postMessage(message);
      };
      inside.body.append(script);
      window.addEventListener("message", event => {
        if (event.source !== this.frame.contentWindow) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        this.onmessage?.(event);
      });
    }

    postMessage(message) {
      if (this.waiting) this.waiting.push(message);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: message }));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
