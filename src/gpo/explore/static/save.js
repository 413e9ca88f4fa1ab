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

export async function savePng(store, panel) {
  const source = element("field");
  const ratio = source.width / source.clientWidth;
  const sheet = document.createElement("canvas");
  const space = Math.round(30 * ratio);
  sheet.width = source.width;
  sheet.height = source.height + space;
  const context = sheet.getContext("2d");
  context.fillStyle = themeColour("panel");
  context.fillRect(0, 0, sheet.width, sheet.height);
  context.fillStyle = themeColour("text");
  context.font = `${13 * ratio}px system-ui, sans-serif`;
  const parts = isNothing(store.ablation) ? "" : ", parts off";
  const when = element("time-text").textContent;
  context.fillText(`${store.run.name}: ${panel.now.name}, ${panel.now.shown}${parts}, ${when}`, 12 * ratio, 20 * ratio);
  context.drawImage(source, 0, space);
  const content = await new Promise((resolve) => sheet.toBlob(resolve, "image/png"));
  download(content, `${store.run.name}-${panel.now.shown}-${store.example}.png`);
}

export async function saveNetcdf(store) {
  const content = await bytes("netcdf", { example: store.example, ablation: plain(store.ablation) });
  download(new Blob([content], { type: "application/x-netcdf" }), `${store.run.name}-${store.example}.nc`);
}
