// Exports: the view as a PNG image, the data as a NetCDF file of the server, the address as a link.

import { themeColour } from "./picture.js";
import { ablationBody, isEmpty } from "./ablation.js";
import { element } from "./store.js";
import { postForBytes } from "./requests.js";

function download(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Copies the address, which contains the view, to the clipboard; the button confirms it.
export async function copyLink(address) {
  const button = element("copy-link");
  const { href } = address;
  try {
    await navigator.clipboard.writeText(href);
  } catch {
    throw new Error("The browser does not allow pages to copy text. Copy the address from the address bar: it contains the view.");
  }
  button.textContent = "Link copied";
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}

// Saves all pictures of the field under a title, arranged as on the page.
export async function savePng(store, panel) {
  const group = element("pictures").getBoundingClientRect();
  const views = panel.views.filter(({ canvas }) => !canvas.parentElement.hidden);
  const ratio = views[0].canvas.width / views[0].canvas.clientWidth;
  const titleHeight = 30;
  const sheet = document.createElement("canvas");
  sheet.width = Math.round(group.width * ratio);
  sheet.height = Math.round((group.height + titleHeight) * ratio);
  const context = sheet.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = themeColour("panel");
  context.fillRect(0, 0, group.width, group.height + titleHeight);
  context.fillStyle = themeColour("text");
  context.font = "600 13px system-ui, sans-serif";
  const parts = isEmpty(store.ablation) ? "" : ", ablated";
  const time = element("time-text").textContent;
  context.fillText(`${store.run.name}: ${panel.fields[0].name}${parts}, ${time}`, 12, 20);
  for (const { canvas } of views) {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const caption = canvas.parentElement.querySelector("figcaption").textContent;
    context.fillText(caption, left - group.left + 6, top - group.top + titleHeight - 7);
    context.drawImage(canvas, left - group.left, top - group.top + titleHeight, width, height);
  }
  const content = await new Promise((resolve) => sheet.toBlob(resolve, "image/png"));
  download(content, `${store.run.name}-${store.shown}-${store.example}.png`);
}

export async function saveNetcdf(store) {
  const content = await postForBytes("netcdf", { example: store.example, ablation: ablationBody(store.ablation) });
  download(new Blob([content], { type: "application/x-netcdf" }), `${store.run.name}-${store.example}.nc`);
}
