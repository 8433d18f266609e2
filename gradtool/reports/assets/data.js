// The data of the report: columns of whole numbers that point into lists of names.

const REGIONS = [
  "parameters", "state", "constants", "inputs", "gradients", "outputs", "activations",
  "backward temporaries", "workspace",
];

// The class that colours a region.
const styleOf = (region) => region.replace(" ", "-");

const summed = (differences) => {
  let at = 0;
  return differences.map((difference) => (at += difference));
};

// Each string begins like the one before it.
const joined = ({ shared, rest }) => {
  let before = "";
  return rest.map((end, number) => (before = before.substring(0, shared[number]) + end));
};

const tensorAt = (data, plan, number) => {
  const { tensors, strings } = data;
  const tensor = plan.tensors[number];
  return {
    number,
    name: strings[tensors.name[tensor]],
    region: strings[tensors.region[tensor]],
    later: strings[tensors.later[tensor]],
    turn: plan.first[number] + plan.turn[number],
    shape: strings[tensors.shape[tensor]],
    type: strings[tensors.type[tensor]],
    also: strings[tensors.also[tensor]],
    bytes: tensors.bytes[tensor],
    first: plan.first[number],
    last: plan.first[number] + plan.held[number],
  };
};

const nodeAt = (data, plan, step) => {
  const { nodes, strings } = data;
  const node = plan.nodes[step];
  const text = (column) => strings[nodes[column][node]];
  return { name: text("name"), op: text("op"), stage: text("stage"), source: text("source") };
};

// The region that a tensor is of at a step: backward may write over what forward left.
const regionAt = ({ region, later, turn }, step) => (later && step >= turn ? later : region);

// Bytes alive at each step, by region and in all.
const courseOf = (tensors, steps) => {
  const by = new Map(REGIONS.map((region) => [region, new Float64Array(steps + 1)]));
  for (const { region, later, turn, first, last, bytes } of tensors) {
    by.get(region)[first] += bytes;
    if (later) {
      by.get(region)[turn] -= bytes;
      by.get(later)[turn] += bytes;
    }
    by.get(later || region)[last + 1] -= bytes;
  }
  const live = new Float64Array(steps);
  for (const change of by.values()) {
    let at = 0;
    for (let step = 0; step < steps; step += 1) {
      at += change[step];
      change[step] = at;
      live[step] += at;
    }
  }
  return { by, live };
};

// A plan with its tensors, the largest first, and its course; made when it is first shown.
const unpacked = (data, plan) => {
  if (plan.course) return plan;
  for (const column of ["nodes", "tensors", "first"]) plan[column] = summed(plan[column]);
  plan.steps = plan.nodes.length;
  plan.list = plan.tensors.map((_, number) => tensorAt(data, plan, number));
  plan.list.sort((a, b) => b.bytes - a.bytes || a.number - b.number);
  plan.course = courseOf(plan.list, plan.steps);
  const used = new Set(plan.list.flatMap(({ region, later }) => [region, later]));
  plan.regions = REGIONS.filter((region) => used.has(region));
  plan.stages = plan.nodes.map((node) => data.strings[data.nodes.stage[node]]);
  return plan;
};
