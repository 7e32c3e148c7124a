"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip"), dialog = document.getElementById("variant");
const MOST_RADIOS = 6, NARROW = 640; // options before a list takes their place; pixels before names are left out
const BADGE = 34, LINE = 18, WIDE = 7.5, WIDE_BOLD = 8.5; // pixels: a rung's badge beside its point; lines and characters of text

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(parent, tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function number(value) { // three significant digits, no exponent
  if (!(value > 0)) return "–";
  const rounded = Number(value.toPrecision(3));
  const places = Math.max(0, 2 - Math.floor(Math.log10(rounded)));
  return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}

function ticks(low, high, most) { // of a logarithmic scale
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(Number(value.toPrecision(3)));
      }
    if (found.length <= most || steps.length === 1) return found;
  }
}

const plain = value => value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
const scale = (low, high, from, to) => value => from + (to - from) * Math.log(value / low) / Math.log(high / low);
