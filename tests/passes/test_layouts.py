"""What values are only layouts of."""

from __future__ import annotations

from graphs import parse

from gradtool.passes import layouts


def test_a_chain_of_layouts_is_walked_once(monkeypatch):
    """Each of twenty nodes is looked at once, and that `y` is none of them."""
    nodes = " ".join(f"h{i + 1} = Identity (h{i})" for i in range(20))
    model = parse(f"g (float[4] x) => (y) {{ h0 = Exp (x) {nodes} y = Exp (h20) }}")
    asked, is_layout = [], layouts.is_layout

    def counted(model, node):
        asked.append(node.outputs[0].name)
        return is_layout(model, node)

    monkeypatch.setattr(layouts, "is_layout", counted)
    values = [node.outputs[0] for node in model.graph]
    storage = layouts.storages(model)
    found = [storage(value).name for value in reversed(values)]

    assert found == ["y", *["h0"] * 21]
    assert len(asked) == len(values)
