// Elements. Text is only ever set as text, so that a name in it stays a name.

const $ = (id) => document.getElementById(id);

const make = (tag, className = "", text = "") => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== "") element.textContent = text;
  return element;
};

const draw = (parent, tag, attributes, text = "") => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== "") element.textContent = text;
  parent.append(element);
  return element;
};

const shortened = (name, longest) => {
  const half = Math.floor(longest / 2);
  return name.length > longest ? `${name.slice(0, half)}…${name.slice(-half)}` : name;
};

// A long name without its middle; all of it is in the tooltip.
const nameCell = (cell, name, longest) => {
  cell.textContent = shortened(name, longest);
  if (cell.textContent !== name) cell.title = name;
  return cell;
};
