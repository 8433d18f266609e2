// What each budget costs in extra work: a curve and a table.

const showFrontier = (frontier, peaks) => {
  if (!frontier) return;
  $("frontier").hidden = false;
  const body = $("points").tBodies[0];
  for (const { budget, peak, extra, bound, how } of frontier) {
    const row = make("tr");
    const work = [extra, bound].map((share) => `+${percentText(share, 3)}`);
    const numbers = [bytesText(budget), bytesText(peak), ...work];
    row.append(...numbers.map((text) => make("td", "number", text)), make("td", "wide", how));
    body.append(row);
  }
  new ResizeObserver(() => drawCurve($("curve"), frontier, peaks)).observe($("curve"));
};

const drawCurve = (holder, frontier, peaks) => {
  const width = Math.max(holder.clientWidth, 280);
  holder.replaceChildren();
  const [height, left, bottom] = [260, 64, 220];
  const svg = draw(holder, "svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const ceiling = Math.max(...frontier.map(({ extra }) => extra), 0.01) * 1.1;
  const widest = Math.max(...peaks, ...frontier.map(({ peak }) => peak));
  const x = (bytes) => left + ((width - left - 24) * bytes) / widest;
  const y = (share) => bottom - ((bottom - 16) * share) / ceiling;
  for (const { size, label } of ticks(widest)) {
    draw(svg, "line", { class: "grid", x1: x(size), x2: x(size), y1: 16, y2: bottom });
    draw(svg, "text", { x: x(size), y: bottom + 18, "text-anchor": "middle" }, label);
  }
  for (const share of [0, ceiling / 2.2, ceiling / 1.1]) {
    draw(svg, "line", { class: "grid", x1: left, x2: width - 24, y1: y(share), y2: y(share) });
    draw(svg, "text", { x: left - 8, y: y(share) + 4, "text-anchor": "end" },
      `+${percentText(share)}`);
  }
  const line = (name, at, work) => {
    const points = frontier.map((p) => `${x(p[at]).toFixed(1)} ${y(p[work]).toFixed(1)}`);
    draw(svg, "path", { class: name, d: `M${points.join("L")}` });
  };
  line("bound", "budget", "bound");
  line("curve", "peak", "extra");
  for (const { peak, extra } of frontier) {
    const dot = draw(svg, "circle", { class: "dot", cx: x(peak), cy: y(extra), r: 4 });
    draw(dot, "title", {}, `${bytesText(peak)}: +${percentText(extra, 3)} extra work`);
  }
};
