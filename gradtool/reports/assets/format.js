// How numbers are written, as gradtool's tables write them.

const halfEven = (x, digits) => {
  const scaled = x * 10 ** digits;
  const rounded = Math.round(scaled);
  const tie = Math.abs(scaled % 1) === 0.5 && rounded % 2 !== 0;
  return (tie ? rounded - 1 : rounded) / 10 ** digits;
};

const threeDigits = (x) => {
  for (const digits of [2, 1]) {
    const rounded = halfEven(x, digits);
    if (rounded * 10 ** digits < 1000) return rounded.toFixed(digits);
  }
  return String(halfEven(x, 0));
};

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

const bytesText = (n) => {
  if (n < 1024) return `${n} B`;
  let power = 0;
  while (halfEven(n / 1024 ** power, 0) >= 1024 && power < UNITS.length - 1) power += 1;
  return `${threeDigits(n / 1024 ** power)} ${UNITS[power]}`;
};

const percentText = (share, digits = 1) => {
  const percent = halfEven(100 * share, digits) + 0;
  return `${percent.toFixed(digits)} %`;
};

// Sizes for an axis from 0 to `most`, at most seven, round in its unit, with their labels.
const ticks = (most) => {
  const power = Math.min(Math.floor(Math.log2(Math.max(most, 1)) / 10), UNITS.length - 1);
  const unit = 1024 ** power;
  const aim = Math.max(most / unit / 6, power ? 0 : 1);
  const ten = 10 ** Math.floor(Math.log10(aim));
  const gap = [1, 2, 5, 10].map((k) => k * ten).find((size) => size >= aim);
  const count = Math.floor(most / unit / gap);
  return Array.from({ length: count + 1 }, (_, k) => {
    const size = Number((k * gap).toPrecision(6));
    return { size: size * unit, label: k ? `${size} ${UNITS[power]}` : "0" };
  });
};
