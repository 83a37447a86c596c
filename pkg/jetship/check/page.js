"use strict";
(() => {
  const table = document.getElementById("matrix");
  const filter = document.getElementById("filter");
  const nothing = document.getElementById("nothing");
  const rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.querySelectorAll("th[data-column]")];
  const looks = [...document.querySelectorAll("button[data-look]")];
  const links = [...table.querySelectorAll("a.cell")];
  const isGroup = (row) => row.classList.contains("group");
  let last = null;

  // Only one cell is in the order of Tab; arrow keys reach the others.
  const stop = (link) => {
    links.forEach((one) => { one.tabIndex = one === link ? 0 : -1; });
  };

  const opened = () => {
    const id = location.hash.slice(1);
    // Cells with the same reasons share them: the one that was chosen is the current one.
    const same = links.filter((link) => link.hash === `#${id}`);
    const current = same.includes(last) ? last : same[0];
    links.forEach((link) => { link.removeAttribute("aria-current"); });
    if (current) {
      current.setAttribute("aria-current", "true");
      last = current;
      stop(current);
    }
    return document.querySelector(".reasons:target");
  };

  const wide = () => matchMedia("(min-width: 62.01rem)").matches;

  // The matrix stays where it is while its neighbour changes; below it, one has to go there.
  const go = (hash) => {
    const board = table.parentElement;
    const place = [scrollX, scrollY, board.scrollLeft, board.scrollTop];
    location.hash = hash;
    if (!wide()) return;
    scrollTo(place[0], place[1]);
    board.scrollTo(place[2], place[3]);
  };

  const close = () => {
    go("#matrix");
    if (last) last.focus({ preventScroll: true });
  };

  const shown = (element) => element.offsetParent !== null;

  const move = (link, across, down) => {
    const column = link.parentElement.dataset.column;
    if (across) {
      const own = links.filter((one) => one.closest("tr") === link.closest("tr") && shown(one));
      return own[own.indexOf(link) + across];
    }
    const own = links.filter((one) => one.parentElement.dataset.column === column && shown(one));
    return own[own.indexOf(link) + down];
  };

  table.addEventListener("click", (event) => {
    const link = event.target.closest("a.cell");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    last = link;
    go(link.hash);
    const panel = opened();
    if (panel) {
      panel.parentElement.scrollTop = 0;
      panel.focus({ preventScroll: true });
    }
  });
  table.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const link = event.target.closest("a.cell");
    const step = steps[event.key];
    if (!link || !step) return;
    event.preventDefault();
    const next = move(link, ...step);
    if (next) {
      stop(next);
      next.focus();
    }
  });
  document.addEventListener("keydown", (event) => {
    const popover = document.querySelector(":popover-open");
    if (event.key === "Escape" && !popover && document.querySelector(".reasons:target")) close();
  });
  document.querySelectorAll(".close").forEach((link) => {
    link.addEventListener("click", (event) => { event.preventDefault(); close(); });
  });
  addEventListener("hashchange", opened);

  // A word that is in the name of a row keeps such rows, one that is in a column's such columns.
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = looks.filter((one) => one.ariaPressed === "true").map((one) => one.dataset.look);
    const inRows = (word) => rows.some((row) => !isGroup(row) && row.dataset.text.includes(word));
    const inHeads = (word) => heads.some((head) => head.dataset.text.includes(word));
    const forRows = words.filter((word) => inRows(word) || !inHeads(word));
    const forHeads = words.filter((word) => !inRows(word) && inHeads(word));
    const visible = heads.map((head) => forHeads.every((word) => head.dataset.text.includes(word)));
    table.querySelectorAll("[data-column]").forEach((cell) => {
      cell.hidden = !visible[cell.dataset.column];
    });
    let group = null;
    let count = 0;
    rows.forEach((row) => {
      if (isGroup(row)) {
        group = row;
        group.hidden = true;
        return;
      }
      const named = forRows.every((word) => row.dataset.text.includes(word));
      const found = [...row.querySelectorAll("a.cell")].filter((link) => !link.parentElement.hidden);
      const looked = !wanted.length || found.some((link) => wanted.includes(link.dataset.look));
      row.hidden = !(named && looked);
      if (row.hidden) return;
      count += 1;
      if (group) group.hidden = false;
    });
    nothing.hidden = count > 0;
  };
  filter.addEventListener("input", apply);
  looks.forEach((button) => {
    button.addEventListener("click", () => {
      button.ariaPressed = String(button.ariaPressed !== "true");
      apply();
    });
  });

  if (links.length) stop(links[0]);
  if (opened() && wide()) addEventListener("load", () => { setTimeout(() => { scrollTo(0, 0); }); });
})();
