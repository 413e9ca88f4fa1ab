// Ablations: the parts of the model that are switched off. An ablation is immutable.

export const NO_ABLATION = { modes: new Set(), layers: new Set(), sites: new Set() };

export const isOff = (ablation, layer, mode) => ablation.modes.has(`${layer},${mode}`);

export function isEmpty(ablation) {
  return !ablation.modes.size && !ablation.layers.size && !ablation.sites.size;
}

// Returns an ablation as the value of a request.
export function ablationBody(ablation) {
  return {
    modes: [...ablation.modes].sort().map((pair) => pair.split(",").map(Number)),
    layers: [...ablation.layers].sort((a, b) => a - b),
    sites: [...ablation.sites].sort((a, b) => a - b),
  };
}

// Switches pairs of layer and mode off, or on again if all of them are off.
export function toggledModes(ablation, pairs) {
  const names = pairs.map(([layer, mode]) => `${layer},${mode}`);
  return { ...ablation, modes: toggled(ablation.modes, names) };
}

export function toggledLayer(ablation, layer) {
  return { ...ablation, layers: toggled(ablation.layers, [layer]) };
}

export function withSites(ablation, sites, isOffNow) {
  const masked = new Set(ablation.sites);
  for (const site of sites) {
    if (isOffNow) masked.add(site);
    else masked.delete(site);
  }
  return { ...ablation, sites: masked };
}

function toggled(before, names) {
  const after = new Set(before);
  const areAllOff = names.every((name) => before.has(name));
  for (const name of names) {
    if (areAllOff) after.delete(name);
    else after.add(name);
  }
  return after;
}

// Returns the ablated parts as {text, without}; `without` is the ablation with that part on again.
export function ablatedParts(ablation, nameOfMode) {
  const parts = [];
  for (const layer of [...ablation.layers].sort((a, b) => a - b)) {
    parts.push({ text: `layer ${layer + 1}`, without: toggledLayer(ablation, layer) });
  }
  const byLayer = new Map();
  for (const [layer, mode] of ablationBody(ablation).modes) {
    if (!byLayer.has(layer)) byLayer.set(layer, []);
    byLayer.get(layer).push(mode);
  }
  for (const [layer, modes] of [...byLayer].sort((a, b) => a[0] - b[0])) {
    const groups = modes.length > 3 ? [modes] : modes.map((mode) => [mode]);
    for (const group of groups) {
      const name = group.length > 1 ? `${group.length} modes` : nameOfMode(group[0]);
      const without = toggledModes(ablation, group.map((mode) => [layer, mode]));
      parts.push({ text: `layer ${layer + 1}: ${name}`, without });
    }
  }
  if (ablation.sites.size) {
    const without = { ...ablation, sites: new Set() };
    parts.push({ text: `region of ${ablation.sites.size} sites`, without });
  }
  return parts;
}
