//! `map`: the keyspace map of a run, as text or as a drawing.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;

use gossip::identity::{RunId, TenantId};
use gossip::store::Backend;

use crate::args::{Global, MapArgs};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::overview::{Overview, Snapshot};
use crate::screen::map::{Cell, Range, Rest, cells, lines};
use crate::screen::style::{Line, Paint, Style};
use crate::screen::text::{self, counted};
use crate::screen::{self, Stream};
use crate::{html, progress, runs, store, watch};

/// Cells of a drawing.
const DRAWN_CELLS: usize = 400;

/// Columns of a map that goes to no terminal.
const COLUMNS: usize = 80;

pub(crate) fn run(global: &Global, args: &MapArgs, console: &Console) -> Result<Code, Failure> {
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let run = args.run.find(&mut backend.coordinator(), tenant)?;
    let snapshot = read(&backend, tenant, run)?;
    if let Some(file) = &args.svg {
        write_svg(file, &snapshot)?;
        console.note(&format!("wrote {}", file.display()));
        return Ok(Code::Complete);
    }
    if !global.output.is_table() {
        let ranges = snapshot.ranges.iter().map(record).collect::<Vec<_>>();
        output::list(global.output, &[], &ranges)?;
        return Ok(Code::Complete);
    }
    let is_terminal = io::stdout().is_terminal();
    let columns = if is_terminal { screen::columns_of(&io::stdout()) } else { COLUMNS };
    let style = Style::of(global.color, is_terminal);
    let mut text = String::new();
    // The last column stays empty, because terminals differ about what happens then.
    let columns = columns.saturating_sub(1).max(1);
    let rows = ((columns + 1) / COLUMNS).max(1);
    for line in
        lines(&snapshot.ranges, columns, rows, style).iter().chain(&legend(&snapshot, style))
    {
        text += line.render(style).trim_end();
        text.push('\n');
    }
    text += &format!("{}\n", progress::keys_of(&snapshot.progress));
    let printed = console.screen().print(Stream::Stdout, text.as_bytes());
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::Internal, "cannot write to standard output").why(error))
        }
        _ => Ok(Code::Complete),
    }
}

fn read(backend: &Backend, tenant: TenantId, run: RunId) -> Result<Snapshot, Failure> {
    let job = runs::job_of(&mut backend.coordinator(), tenant, run).ok();
    let density = job.as_ref().map(watch::density_of_job).unwrap_or_default();
    let (snapshot, _) = Overview::new(backend, tenant, run, density, None).read();
    snapshot.map_err(|error| runs::not_found(run, &error))
}

fn record(range: &Range) -> Record {
    let state = match range.rest {
        // An empty range is a single failed item and not done.
        _ if range.covered >= range.to && range.to > range.from => "done",
        Rest::Leased(_) => "leased",
        Rest::Stalled => "stalled",
        Rest::Waiting => "waiting",
        Rest::Failed => "failed",
    };
    let worker = match range.rest {
        Rest::Leased(worker) => Some(worker as u64),
        Rest::Stalled | Rest::Waiting | Rest::Failed => None,
    };
    Record::new()
        .with("from", range.from)
        .with("covered", range.covered)
        .with("to", range.to)
        .with("state", state)
        .with("worker", worker)
}

/// Returns the lines that explain the signs of the map that occur in it.
fn legend(snapshot: &Snapshot, style: Style) -> Vec<Line> {
    let shown = cells(&snapshot.ranges, COLUMNS);
    let mut line = Line::new();
    let mut add = |cell: Cell, text: &str| {
        line.push(cell.paint(), cell.sign(style).to_string());
        line.push(Paint::Plain, format!(" {text}   "));
    };
    let has = |wanted: fn(&Cell) -> bool| shown.iter().any(wanted);
    if has(|cell| *cell == Cell::Done) {
        add(Cell::Done, "done");
    }
    for worker in snapshot.workers(std::time::Instant::now()) {
        let text = format!("{} ({})", worker.name, counted(worker.shards as u64, "shard"));
        match worker.stalled {
            None => add(Cell::Leased(worker.number, false), &text),
            Some(stall) => {
                let left = stall.left.as_millis().div_ceil(1_000);
                add(Cell::Stalled, &format!("{text}, stalled, free in {left} s"));
            }
        }
    }
    if has(|cell| matches!(cell, Cell::Waiting(_))) {
        add(Cell::Waiting(false), "waiting");
    }
    if has(|cell| *cell == Cell::Failed) {
        add(Cell::Failed, "failed");
    }
    vec![line]
}

fn write_svg(file: &Path, snapshot: &Snapshot) -> Result<(), Failure> {
    fs::write(file, svg(snapshot)).map_err(|error| {
        Failure::new(Code::Internal, format!("cannot write `{}`", file.display())).why(error)
    })
}

/// Colours of the drawing: done, failed, stalled, waiting; then workers, which colour-blind
/// readers can distinguish as well.
const COLORS: [&str; 4] = ["#2b9a66", "#ce2c31", "#8b8d98", "#e0e1e6"];
const WORKER_COLORS: [&str; 6] = ["#0090ff", "#f5a524", "#8e4ec6", "#00a2c7", "#d6409f", "#946800"];

fn svg(snapshot: &Snapshot) -> String {
    let cells = cells(&snapshot.ranges, DRAWN_CELLS);
    let progress = &snapshot.progress;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {DRAWN_CELLS} 34\" \
         font-family=\"sans-serif\" font-size=\"7\">\n<title>Keyspace map: {}</title>\n",
        progress::keys_of(progress)
    );
    let mut start = 0;
    // One rectangle for equal neighbours keeps the file small.
    for same in cells.chunk_by(|one, other| color(*one) == color(*other)) {
        let (color, len) = (color(same[0]), same.len());
        let rect =
            format!("<rect x=\"{start}\" width=\"{len}\" height=\"20\" fill=\"{color}\"/>\n");
        svg.push_str(&rect);
        start += len;
    }
    let workers = snapshot.workers(std::time::Instant::now());
    let mut x = 0;
    let mut add = |color: &str, text: &str| {
        let written = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"25\" width=\"6\" height=\"6\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"30.5\" fill=\"#60646c\">{}</text>",
            x + 8,
            label(text)
        );
        written.expect("a string accepts every text");
        // About four units for each letter at this size.
        x += 16 + 4 * text.len();
    };
    add(COLORS[0], "done");
    for worker in workers.iter().filter(|worker| worker.stalled.is_none()) {
        add(color(Cell::Leased(worker.number, false)), &worker.name);
    }
    add(COLORS[2], "stalled");
    add(COLORS[3], "waiting");
    add(COLORS[1], "failed");
    svg.push_str("</svg>\n");
    svg
}

/// Returns a text for the drawing. Names of workers come from a registry that other hosts write.
fn label(text: &str) -> String {
    html::text(&text::escaped(text.as_bytes()))
}

const fn color(cell: Cell) -> &'static str {
    match cell {
        Cell::Done => COLORS[0],
        Cell::Failed => COLORS[1],
        Cell::Stalled => COLORS[2],
        Cell::Waiting(_) => COLORS[3],
        Cell::Leased(worker, _) => WORKER_COLORS[worker % WORKER_COLORS.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_of_a_worker_cannot_become_markup() {
        assert_eq!(label("host:1"), "host:1");
        let bad = label("</text><script>\u{1b}");
        assert!(!bad.contains(['<', '>', '\u{1b}']), "{bad}");
    }
}
