// The page: which plan is shown, which step is looked at, and what follows from both.

const data = JSON.parse($("data").textContent);
data.strings = joined(data.strings);
const ceiling = Math.max(...data.plans.map((plan) => plan.peak));
const state = { plan: null, step: 0, hover: null };
const chart = new Chart($("chart"));
const table = new TensorTable(() => point());

const looked = () => state.hover ?? state.step;

const point = () => {
  if (!state.plan.steps) return;
  chart.point(looked(), table.picked);
};

const described = () => {
  const node = nodeAt(data, state.plan, looked());
  const from = node.source && node.source !== node.name ? `, from ${shortened(node.source, 60)}` : "";
  return [node.name, ` (${shortened(node.op, 60)}, ${node.stage}${from})`];
};

const showStep = () => {
  table.show(state.plan, looked());
  if (state.plan.steps) showWhere(state.plan, looked());
};

const showWhere = (plan, step) => {
  const live = plan.course.live[step];
  const told = `step ${step + 1} of ${plan.steps}: ${bytesText(live)}`;
  const [name, more] = described();
  const node = make("span");
  node.append(nameCell(make("span"), name, 80), more);
  $("where").replaceChildren(make("b", "", told), " ", node);
  const slider = $("chart");
  slider.setAttribute("aria-valuemax", plan.steps);
  slider.setAttribute("aria-valuenow", step + 1);
  slider.setAttribute("aria-valuetext", `${told}, ${shortened(name, 80)}${more}`);
  if (document.activeElement !== $("step")) $("step").value = step + 1;
  $("step").max = plan.steps;
  const parts = plan.regions.map((region) => [region, plan.course.by.get(region)[step]]);
  $("regions").replaceChildren(...[...parts, ["gaps", plan.peak - live]].map(legendItem));
  point();
};

const legendItem = ([region, size]) => {
  const item = make("li");
  const share = state.plan.peak ? size / state.plan.peak : 0;
  item.append(
    make("span", `swatch ${styleOf(region)}`),
    make("span", "region", region === "gaps" ? "free in the arena" : region),
    make("span", "size", bytesText(size)),
    make("span", "share", percentText(share)),
  );
  return item;
};

const showPlan = (plan) => {
  state.plan = unpacked(data, plan);
  state.step = plan.peak_step;
  state.hover = null;
  table.picked = null;
  chart.show(plan, ceiling, data.plans[0].peak);
  showStep();
};

const go = (step) => {
  state.hover = null;
  state.step = Math.min(Math.max(step, 0), Math.max(state.plan.steps - 1, 0));
  showStep();
};

const planRow = (plan, number) => {
  const row = make("tr");
  const head = make("th");
  head.scope = "row";
  const label = make("label");
  const radio = make("input");
  Object.assign(radio, { type: "radio", name: "plan", checked: number === 0 });
  radio.addEventListener("change", () => showPlan(plan));
  label.append(radio, make("span", "", plan.title));
  head.append(label);
  const cells = number ? [plan.saved, plan.extra] : ["", ""];
  row.append(head, ...[bytesText(plan.peak), ...cells].map((text) => make("td", "number", text)));
  return row;
};

const KEYS = {
  ArrowLeft: () => looked() - 1,
  ArrowDown: () => looked() - 1,
  ArrowRight: () => looked() + 1,
  ArrowUp: () => looked() + 1,
  PageDown: () => looked() - Math.ceil(state.plan.steps / 10),
  PageUp: () => looked() + Math.ceil(state.plan.steps / 10),
  Home: () => 0,
  End: () => state.plan.steps - 1,
};

const listen = () => {
  const slider = $("chart");
  let waiting = null;
  const hover = (step) => {
    if (waiting === null) {
      requestAnimationFrame(() => {
        state.hover = waiting.step;
        waiting = null;
        showStep();
      });
    }
    waiting = { step };
  };
  slider.addEventListener("pointermove", (event) => hover(chart.stepAt(event.clientX)));
  slider.addEventListener("pointerleave", () => hover(null));
  slider.addEventListener("click", (event) => go(chart.stepAt(event.clientX)));
  slider.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    go(KEYS[event.key]());
  });
  $("back").addEventListener("click", () => go(state.step - 1));
  $("on").addEventListener("click", () => go(state.step + 1));
  $("peak").addEventListener("click", () => go(state.plan.peak_step));
  $("step").addEventListener("input", () => {
    const asked = Math.floor(Number($("step").value));
    if (asked >= 1) go(asked - 1);
  });
  new ResizeObserver(() => {
    chart.show(state.plan, ceiling, data.plans[0].peak);
    point();
  }).observe(slider);
};

$("sizes").textContent = data.sizes;
$("counted").textContent = data.footer;
$("plans").tBodies[0].replaceChildren(...data.plans.map(planRow));
showPlan(data.plans[0]);
listen();
showFrontier(data.frontier, data.plans.map((plan) => plan.peak));
