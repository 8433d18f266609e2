// The stacked course of memory over the steps of a plan.

const MARGIN = { left: 64, right: 12, top: 18, bottom: 40 };
const BAND = 8; // height of the strip that shows the stages
const STAGES = ["forward", "backward", "recompute", "update"];

// Where there are more steps than columns, a column shows the largest of its steps.
const columnsOf = (live, most) => {
  const count = Math.max(Math.min(live.length, most), 1);
  const starts = Array.from({ length: count + 1 }, (_, c) => Math.floor((c * live.length) / count));
  const shown = starts.slice(0, -1).map((start, c) => {
    let best = start;
    for (let step = start + 1; step < starts[c + 1]; step += 1) {
      if (live[step] > live[best]) best = step;
    }
    return best;
  });
  return { count, starts, shown };
};

class Chart {
  constructor(holder) {
    this.holder = holder;
    this.svg = draw(holder, "svg", { "aria-hidden": "true" });
  }

  show(plan, ceiling, keepPeak) {
    Object.assign(this, { plan, ceiling, keepPeak });
    const width = Math.max(this.holder.clientWidth, 280);
    const height = width < 600 ? 260 : 340;
    this.plot = {
      left: MARGIN.left, right: width - MARGIN.right,
      top: MARGIN.top, bottom: height - MARGIN.bottom,
    };
    this.columns = columnsOf(plan.course.live, Math.floor(this.plot.right - this.plot.left));
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawAxis();
    this.drawRegions();
    this.drawStages();
    this.drawLine(keepPeak, "keep everything", plan.peak < 0.97 * keepPeak);
    this.drawLine(plan.peak, "arena", true);
    this.span = draw(this.svg, "rect", { class: "span", y: this.plot.top, height: 0 });
    this.cursor = draw(this.svg, "line", { class: "cursor", y1: this.plot.top - 4,
      y2: this.plot.bottom + BAND + 2 });
  }

  x(column) {
    return this.plot.left + (column * (this.plot.right - this.plot.left)) / this.columns.count;
  }

  y(bytes) {
    const { top, bottom } = this.plot;
    return bottom - ((bottom - top) * bytes) / Math.max(this.ceiling, 1);
  }

  columnOf(step) {
    const { starts, count } = this.columns;
    let column = Math.min(Math.floor((step * count) / this.plan.steps), count - 1);
    while (starts[column] > step) column -= 1;
    while (column < count - 1 && starts[column + 1] <= step) column += 1;
    return column;
  }

  stepAt(clientX) {
    const box = this.svg.getBoundingClientRect();
    const at = ((clientX - box.left) * this.svg.viewBox.baseVal.width) / box.width;
    const share = (at - this.plot.left) / (this.plot.right - this.plot.left);
    const column = Math.floor(share * this.columns.count);
    return this.columns.shown[Math.min(Math.max(column, 0), this.columns.count - 1)];
  }

  drawAxis() {
    const { left, right } = this.plot;
    for (const { size, label } of ticks(this.ceiling)) {
      const y = this.y(size);
      draw(this.svg, "line", { class: size ? "grid" : "base", x1: left, x2: right, y1: y, y2: y });
      draw(this.svg, "text", { x: left - 8, y: y + 4, "text-anchor": "end" }, label);
    }
  }

  drawRegions() {
    const { shown, count } = this.columns;
    let floor = new Float64Array(count);
    for (const region of REGIONS) {
      const sizes = this.plan.course.by.get(region);
      const roof = floor.map((below, column) => below + sizes[shown[column]]);
      if (roof.some((above, column) => above > floor[column])) {
        draw(this.svg, "path", { class: `area ${styleOf(region)}`, d: this.outline(floor, roof) });
      }
      floor = roof;
    }
  }

  // Along the roof from left to right, back along the floor.
  outline(floor, roof) {
    const corners = [];
    const put = (column, end, size) =>
      corners.push(`${this.x(column + end).toFixed(1)} ${this.y(size).toFixed(1)}`);
    for (let c = 0; c < roof.length; c += 1) {
      put(c, 0, roof[c]);
      put(c, 1, roof[c]);
    }
    for (let c = roof.length - 1; c >= 0; c -= 1) {
      put(c, 1, floor[c]);
      put(c, 0, floor[c]);
    }
    return `M${corners.join("L")}Z`;
  }

  drawStages() {
    const { shown, count } = this.columns;
    const { stages } = this.plan;
    const y = this.plot.bottom + 2;
    let from = 0;
    for (let column = 1; column <= count; column += 1) {
      const stage = stages[shown[from]];
      if (column < count && stages[shown[column]] === stage) continue;
      const [x, width] = [this.x(from), this.x(column) - this.x(from)];
      draw(this.svg, "rect", { class: `stage ${stage}`, x, y, width, height: BAND });
      from = column;
    }
    this.drawKey(y + BAND + 16);
  }

  drawKey(y) {
    let x = this.plot.left;
    for (const stage of STAGES.filter((each) => this.plan.stages.includes(each))) {
      draw(this.svg, "rect", { class: `stage ${stage}`, x, y: y - 8, width: BAND, height: BAND });
      const label = draw(this.svg, "text", { x: x + BAND + 5, y }, stage);
      x += BAND + 5 + label.getComputedTextLength() + 14;
    }
  }

  drawLine(size, label, wanted) {
    if (!wanted) return;
    const { left, right } = this.plot;
    const y = this.y(size);
    draw(this.svg, "line", { class: "limit", x1: left, x2: right, y1: y, y2: y });
    draw(this.svg, "text", { class: "limit-label", x: left + 6, y: y - 5 },
      `${label} ${bytesText(size)}`);
  }

  // The step looked at, and the steps through which a chosen tensor is held.
  point(step, tensor) {
    const column = this.columnOf(step);
    const x = (this.x(column) + this.x(column + 1)) / 2;
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    const from = tensor ? this.x(this.columnOf(tensor.first)) : 0;
    const to = tensor ? this.x(this.columnOf(tensor.last) + 1) : 0;
    this.span.setAttribute("x", from);
    this.span.setAttribute("width", Math.max(to - from, 0));
    this.span.setAttribute("height", this.plot.bottom - this.plot.top);
  }
}
