// Parts that are switched off. A silence is never changed, only replaced.

export const NOTHING = { modes: new Set(), layers: new Set(), sites: new Set() };

export const isOff = (silence, layer, mode) => silence.modes.has(`${layer},${mode}`);

export function isNothing(silence) {
  return !silence.modes.size && !silence.layers.size && !silence.sites.size;
}

// Returns what the server understands.
export function plain(silence) {
  return {
    modes: [...silence.modes].sort().map((pair) => pair.split(",").map(Number)),
    layers: [...silence.layers].sort((a, b) => a - b),
    sites: [...silence.sites].sort((a, b) => a - b),
  };
}

// Switches pairs of layer and mode off, or on again where all of them are off.
export function toggledModes(silence, pairs) {
  const names = pairs.map(([layer, mode]) => `${layer},${mode}`);
  return { ...silence, modes: toggled(silence.modes, names) };
}

export function toggledLayer(silence, layer) {
  return { ...silence, layers: toggled(silence.layers, [layer]) };
}

export function withSites(silence, sites, isOffNow) {
  const kept = new Set(silence.sites);
  for (const site of sites) {
    if (isOffNow) kept.add(site);
    else kept.delete(site);
  }
  return { ...silence, sites: kept };
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

// Returns the parts as a list of {text, without}: `without` is the silence when it is on again.
export function listed(silence, nameOfMode) {
  const parts = [];
  for (const layer of [...silence.layers].sort((a, b) => a - b)) {
    parts.push({ text: `layer ${layer + 1}`, without: toggledLayer(silence, layer) });
  }
  const byLayer = new Map();
  for (const [layer, mode] of plain(silence).modes) {
    if (!byLayer.has(layer)) byLayer.set(layer, []);
    byLayer.get(layer).push(mode);
  }
  for (const [layer, modes] of [...byLayer].sort((a, b) => a[0] - b[0])) {
    const groups = modes.length > 3 ? [modes] : modes.map((mode) => [mode]);
    for (const group of groups) {
      const name = group.length > 1 ? `${group.length} modes` : nameOfMode(group[0]);
      const without = toggledModes(silence, group.map((mode) => [layer, mode]));
      parts.push({ text: `layer ${layer + 1}: ${name}`, without });
    }
  }
  if (silence.sites.size) {
    const without = { ...silence, sites: new Set() };
    parts.push({ text: `region of ${silence.sites.size} sites`, without });
  }
  return parts;
}
