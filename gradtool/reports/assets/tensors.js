// The table of tensors: those alive at a step or all, searched and sorted.

const PAGE = 100; // rows shown at first, and added by "show more"
const LONGEST_NAME = 64;

const ORDERS = {
  bytes: () => 0,
  name: (a, b) => (a.name < b.name ? -1 : Number(a.name > b.name)),
  region: (a, b, step) =>
    REGIONS.indexOf(regionAt(a, step)) - REGIONS.indexOf(regionAt(b, step)),
  first: (a, b) => a.first - b.first || a.last - b.last,
};

class TensorTable {
  constructor(onPick) {
    Object.assign(this, { onPick, order: "bytes", rows: PAGE, picked: null });
    this.body = $("tensors").tBodies[0];
    this.buttons = [...$("tensors").querySelectorAll("[data-sort]")];
    for (const button of this.buttons) {
      button.addEventListener("click", () => this.sort(button.dataset.sort));
    }
    for (const id of ["alive", "all"]) $(id).addEventListener("change", () => this.restart());
    $("search").addEventListener("input", () => this.restart());
    $("more").addEventListener("click", () => {
      this.rows += PAGE;
      this.fill();
    });
    this.markOrder();
  }

  show(plan, step) {
    Object.assign(this, { plan, step });
    this.fill();
  }

  restart() {
    this.rows = PAGE;
    this.fill();
  }

  sort(order) {
    this.order = order;
    this.markOrder();
    this.restart();
  }

  markOrder() {
    for (const button of this.buttons) {
      const { sort } = button.dataset;
      const way = sort === "bytes" ? "descending" : "ascending";
      button.closest("th").setAttribute("aria-sort", sort === this.order ? way : "none");
    }
  }

  found() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = $("all").checked;
    const wanted = this.plan.list.filter((tensor) => {
      if (!all && (this.step < tensor.first || this.step > tensor.last)) return false;
      if (!words.length) return true;
      const { name, also, shape, type } = tensor;
      const region = regionAt(tensor, this.step);
      const text = `${name} ${also} ${region} ${shape} ${type}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const order = ORDERS[this.order];
    return this.order === "bytes" ? wanted : wanted.sort((a, b) => order(a, b, this.step));
  }

  fill() {
    const found = this.found();
    const shown = found.slice(0, this.rows);
    this.body.replaceChildren(...shown.map((tensor) => this.row(tensor)));
    const bytes = bytesText(found.reduce((sum, tensor) => sum + tensor.bytes, 0));
    const where = $("all").checked ? "in the whole step" : `alive at step ${this.step + 1}`;
    const part = shown.length < found.length ? `, ${shown.length} shown` : "";
    const noun = found.length === 1 ? "tensor" : "tensors";
    $("count").textContent = `${found.length} ${noun} ${where}: ${bytes}${part}`;
    $("more").hidden = shown.length === found.length;
  }

  row(tensor) {
    const row = make("tr");
    const head = make("th");
    head.scope = "row";
    const button = nameCell(make("button"), tensor.name, LONGEST_NAME);
    button.type = "button";
    button.setAttribute("aria-pressed", String(this.picked === tensor));
    button.addEventListener("click", () => this.pick(tensor));
    head.append(button);
    if (tensor.also && this.picked === tensor) {
      head.append(nameCell(make("div", "also"), `in its place at other steps: ${tensor.also}`, 200));
    }
    const region = make("td");
    const now = regionAt(tensor, this.step);
    region.append(make("span", `swatch ${styleOf(now)}`), make("span", "", now));
    row.append(
      head,
      region,
      make("td", "number wide", tensor.shape),
      make("td", "wide", tensor.type),
      make("td", "number", bytesText(tensor.bytes)),
      make("td", "number", `${tensor.first + 1}–${tensor.last + 1}`),
    );
    return row;
  }

  pick(tensor) {
    this.picked = this.picked === tensor ? null : tensor;
    this.fill();
    this.onPick(this.picked);
  }
}
