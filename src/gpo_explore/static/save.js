// The view as PNG, made of the canvas, and the data as NetCDF, made by the server.

import { themeColour } from "./picture.js";
import { isNothing, plain } from "./ablation.js";
import { element } from "./store.js";
import { bytes } from "./wire.js";

function download(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Puts the address, which holds the view, where it can be pasted from; says so on the button.
export async function copyLink(address) {
  const button = element("copy-link");
  const { href } = address;
  try {
    await navigator.clipboard.writeText(href);
  } catch {
    throw new Error("The browser lets no page copy here: copy the address from its bar; it holds the view.");
  }
  button.textContent = "Link copied";
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}

// All pictures of the field, side by side or below each other as on the page, under a title.
export async function savePng(store, panel) {
  const home = element("pictures").getBoundingClientRect();
  const views = panel.views.filter(({ canvas }) => !canvas.parentElement.hidden);
  const ratio = views[0].canvas.width / views[0].canvas.clientWidth;
  const space = 30;
  const sheet = document.createElement("canvas");
  sheet.width = Math.round(home.width * ratio);
  sheet.height = Math.round((home.height + space) * ratio);
  const context = sheet.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = themeColour("panel");
  context.fillRect(0, 0, home.width, home.height + space);
  context.fillStyle = themeColour("text");
  context.font = "600 13px system-ui, sans-serif";
  const parts = isNothing(store.ablation) ? "" : ", parts off";
  const when = element("time-text").textContent;
  context.fillText(`${store.run.name}: ${panel.now.name}${parts}, ${when}`, 12, 20);
  for (const { canvas } of views) {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const caption = canvas.parentElement.querySelector("figcaption").textContent;
    context.fillText(caption, left - home.left + 6, top - home.top + space - 7);
    context.drawImage(canvas, left - home.left, top - home.top + space, width, height);
  }
  const content = await new Promise((resolve) => sheet.toBlob(resolve, "image/png"));
  download(content, `${store.run.name}-${store.shown}-${store.example}.png`);
}

export async function saveNetcdf(store) {
  const content = await bytes("netcdf", { example: store.example, ablation: plain(store.ablation) });
  download(new Blob([content], { type: "application/x-netcdf" }), `${store.run.name}-${store.example}.nc`);
}
