//! The lines of a frame: a pure function of the data, the size of the terminal and its style.
//!
//! ```text
//!  ██████▓▒▒▒▒▒▒██▓▒▒▒░░░░░░✗·····································   map of the source
//!   30 % ━━━━━━━━━━━━━──────────────────────────  1,200 of 4,000 keys   bar
//!  12 s   ETA 3 m 10 s ± 20 s   19/s   1 failed                        figures
//!  ░ pid 4014 is gone; its 2 shards are free in 9 s                    stalled worker
//!  ▒ here   ▒ pid 4013                                                 workers
//!   1    3 s  photos/a.jpg                                             one lane per job
//!  last failure: photos/x.jpg: exit status 1
//! ```
//!
//! Parts are left out where they do not fit, the least important first; no line reaches the last
//! column, because terminals differ about what happens then.

use std::time::Duration;

use gossip::runtime::{Progress, ProgressKind};

use super::map::{self, Cell, worker_letter};
use super::style::{Line, Paint, Style};
use super::text::{clip, counted, escaped, number, passed, passed_briefly, rate, width};
use super::view::{Lane, View, Worker};
use crate::duration;

/// Lanes shown at most: more are too many to follow, and make some terminals flicker.
pub(crate) const LANES_MAX: usize = 8;

/// A map has one line for so many columns of the terminal.
const MAP_COLUMNS: usize = 80;

/// Below this width nothing useful fits.
const COLUMNS_MIN: usize = 8;

/// The shortest useful bar.
const BAR_MIN: usize = 10;

/// The widest bar: the map above it shows more detail.
const BAR_MAX: usize = 60;

/// Below this width the remaining time is shown without its error.
const ETA_ERROR_COLUMNS: usize = 60;

/// Below this width a lane has the item and its time only.
const LANE_COLUMNS: usize = 40;

/// Space between two parts of a line.
const GAP: &str = "   ";

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// Returns the lines of a frame; none if the terminal is too small for any.
pub(crate) fn lines(view: &View, size: Size, style: Style) -> Vec<Line> {
    // The cursor rests on the line below the frame.
    let (columns, rows) = (size.columns.saturating_sub(1), size.rows.saturating_sub(1));
    if columns < COLUMNS_MIN || rows == 0 {
        return Vec::new();
    }
    let frame = Frame { view, columns, style };
    let mut parts = frame.parts(size.columns / MAP_COLUMNS);
    let mut height: usize = parts.iter().map(|part| part.lines.len()).sum();
    // The least important parts are shortened from their ends until the rest fits.
    for rank in (1..=RANK_LAST).rev() {
        for part in parts.iter_mut().filter(|part| part.rank == rank) {
            // From the end: the first lines of a part are those that matter.
            while height > rows && part.lines.pop().is_some() {
                height -= 1;
            }
        }
    }
    // Without a title above it the bar itself says which run it is.
    if let Some(title) = view.title.as_ref().filter(|_| parts[TITLE].lines.is_empty()) {
        parts[BAR].lines = vec![frame.named_bar(&title.short)];
    }
    let lines = parts.into_iter().flat_map(|part| part.lines);
    lines.map(|line| line.clipped(columns)).collect()
}

/// Returns the lines of several runs, one below the other, as far as they fit.
pub(crate) fn all(views: &[View], size: Size, style: Style) -> Vec<Line> {
    let mut drawn = Vec::new();
    for (index, view) in views.iter().enumerate() {
        // Each gets its share of what the runs above it have left.
        let rows = size.rows.saturating_sub(1 + drawn.len()) / (views.len() - index);
        drawn.extend(lines(view, Size { rows: rows + 1, ..size }, style));
    }
    drawn
}

/// Lines that belong together. Parts of a higher rank are left out first; rank 0 stays.
struct Part {
    rank: u8,
    lines: Vec<Line>,
}

const RANK_LAST: u8 = 5;

/// The places of two parts in their order.
const TITLE: usize = 0;
const BAR: usize = 2;

struct Frame<'v> {
    view: &'v View,
    columns: usize,
    style: Style,
}

impl Frame<'_> {
    fn parts(&self, map_rows: usize) -> Vec<Part> {
        let part = |rank, lines| Part { rank, lines };
        vec![
            part(4, self.title().into_iter().collect()),
            part(3, map::lines(&self.view.ranges, self.columns, map_rows.max(1), self.style)),
            part(0, vec![self.bar(self.columns)]),
            part(1, vec![self.figures()]),
            part(2, self.stalled().into_iter().collect()),
            part(4, self.workers().into_iter().collect()),
            part(RANK_LAST, self.lanes()),
            part(2, self.failure().into_iter().collect()),
        ]
    }

    fn title(&self) -> Option<Line> {
        let title = self.view.title.as_ref()?;
        Some(Line::new().with(Paint::Strong, self.clip(&title.text, self.columns)))
    }

    /// Shortens a text, with a mark that the terminal can show.
    fn clip(&self, text: &str, columns: usize) -> String {
        clip(text, columns, if self.style.is_ascii { "..." } else { "…" })
    }

    /// The name of a run, and its bar in the rest of the line.
    fn named_bar(&self, name: &str) -> Line {
        // A long name leaves half of the line to the percentage.
        let name = format!("{}  ", self.clip(name, (self.columns / 2).saturating_sub(2)));
        let bar = self.bar(self.columns.saturating_sub(width(&name)));
        Line::new().with(Paint::Strong, name).and(bar)
    }

    /// The percentage, a bar, and the counts in the longest form that leaves room for the bar.
    fn bar(&self, columns: usize) -> Line {
        let texts = count_texts(self.view);
        let Some((percent, fraction)) =
            self.view.progress.and_then(|it| it.percent.zip(it.fraction))
        else {
            let fits = texts.iter().find(|text| width(text) <= columns);
            return Line::new()
                .with(Paint::Plain, fits.or_else(|| texts.last()).cloned().unwrap_or_default());
        };
        let percent = format!("{percent:>3} %");
        let left = columns.saturating_sub(width(&percent));
        let room = |text: &&String| left.checked_sub(width(text) + 2);
        // The first that fits is the longest.
        let with_bar = texts.iter().find(|text| room(text).is_some_and(|bar| bar > BAR_MIN));
        let line = Line::new().with(Paint::Strong, percent);
        if let Some(text) = with_bar {
            let len = room(&text).unwrap_or(0).saturating_sub(1).min(BAR_MAX);
            return self
                .with_bar(line.with(Paint::Plain, " "), len, fraction)
                .with(Paint::Plain, format!("  {text}"));
        }
        match texts.iter().find(|text| width(text) < left) {
            Some(text) => line.with(Paint::Plain, format!(" {text}")),
            None => line,
        }
    }

    fn with_bar(&self, line: Line, len: usize, fraction: f64) -> Line {
        // Full only at the end.
        let full = ((fraction * len as f64) as usize).min(len);
        let (done, rest) = if self.style.is_ascii { ("=", "-") } else { ("━", "─") };
        line.with(Paint::Done, done.repeat(full)).with(Paint::Dim, rest.repeat(len - full))
    }

    /// Elapsed and remaining time, rate and counts of failures; the least important are left out
    /// where they do not fit.
    fn figures(&self) -> Line {
        let view = self.view;
        let unread = view.progress.map_or(0, |progress| progress.unread);
        let damaged = view.progress.map_or(0, |progress| progress.shards_damaged);
        // In the order of the line, with their importance: 0 is the highest.
        let mut figures = vec![(4, Paint::Plain, passed(view.elapsed))];
        if let Some(halted) = &view.halted {
            figures.push((0, Paint::Warning, halted.clone()));
        }
        if let Some(eta) = view.progress.as_ref().and_then(|progress| self.eta(progress)) {
            figures.push((1, Paint::Plain, eta));
        }
        figures.push((3, Paint::Plain, rate(view.rate)));
        for (rank, count, what) in
            [(0, view.failed, "failed"), (2, unread, "unread"), (2, damaged, "damaged")]
        {
            if count > 0 {
                figures.push((rank, Paint::Failed, format!("{} {what}", number(count))));
            }
        }
        if let Some(progress) = view.progress {
            figures.push((7, Paint::Dim, shards(&progress)));
        }
        while figures_width(&figures) > self.columns && figures.len() > 1 {
            // The highest rank is the least important one.
            let last = figures.iter().enumerate().max_by_key(|(_, (rank, ..))| *rank);
            let Some((index, _)) = last else { break };
            figures.remove(index);
        }
        let mut line = Line::new();
        for (index, (_, paint, text)) in figures.into_iter().enumerate() {
            if index > 0 {
                line.push(Paint::Plain, GAP);
            }
            line.push(paint, text);
        }
        line
    }

    /// The remaining time, with its error if there is room; `None` where there is nothing to
    /// estimate.
    fn eta(&self, progress: &Progress) -> Option<String> {
        progress.total?;
        let Some(eta) = progress.eta else {
            return (!progress.paused).then(|| "ETA unknown".to_owned());
        };
        let left = format!("ETA {}", duration::rough(eta.left));
        if self.columns < ETA_ERROR_COLUMNS {
            return Some(left);
        }
        let sign = if self.style.is_ascii { "+-" } else { "±" };
        Some(format!("{left} {sign} {}", duration::rough(eta.error)))
    }

    /// The worker whose leases end first among those that do not renew them.
    fn stalled(&self) -> Option<Line> {
        let stalled =
            || self.view.workers.iter().filter_map(|worker| Some((worker, worker.stalled?)));
        let (worker, stall) = stalled().min_by_key(|(_, stall)| stall.left)?;
        let what = if stall.is_gone { "is gone" } else { "does not renew its leases" };
        // Rounded up, so that the wait is over when it says so.
        let left = stall.left.as_millis().div_ceil(1_000);
        let shards = counted(worker.shards as u64, "shard");
        let more = match stalled().count() {
            0 | 1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let name = &worker.name;
        let texts = match stall.left.is_zero() {
            true => {
                [format!("{name} {what}; {shards} free to claim{more}"), format!("{name} gone")]
            }
            false => [
                format!("{name} {what}; {shards} free in {left} s{more}"),
                format!("{name}: {left} s"),
            ],
        };
        let fits = |text: &&String| width(text) + 2 <= self.columns;
        let text = texts.iter().find(fits).unwrap_or(&texts[1]);
        let sign = Cell::Stalled.sign(self.style);
        let line = Line::new().with(Paint::Dim, format!("{sign} "));
        Some(line.with(Paint::Warning, self.clip(text, self.columns.saturating_sub(2))))
    }

    /// The legend of the map, if several workers are at work.
    fn workers(&self) -> Option<Line> {
        let alive: Vec<&Worker> =
            self.view.workers.iter().filter(|worker| worker.stalled.is_none()).collect();
        if self.view.workers.len() < 2 || alive.is_empty() {
            return None;
        }
        let mut line = Line::new();
        for (index, worker) in alive.iter().enumerate() {
            let sign = match self.style.is_ascii {
                true => worker_letter(worker.number),
                false => Cell::Leased(worker.number, false).sign(self.style),
            };
            let text = format!("{} ({})", worker.name, worker.shards);
            let gap = if index > 0 { GAP } else { "" };
            let more = format!("{GAP}+{}", alive.len() - index);
            let is_last = index + 1 == alive.len();
            let room =
                if is_last { self.columns } else { self.columns.saturating_sub(width(&more)) };
            if line.width() + width(gap) + 2 + width(&text) > room {
                // A legend of a number alone says nothing.
                if index == 0 {
                    return None;
                }
                line.push(Paint::Dim, more);
                break;
            }
            line.push(Paint::Plain, gap);
            line.push(Paint::Worker(worker.number), format!("{sign} "));
            line.push(Paint::Plain, text);
        }
        Some(line)
    }

    /// One line per job, empty for a job without an item, so that the height does not change.
    fn lanes(&self) -> Vec<Line> {
        let view = self.view;
        let shown = view.jobs.min(LANES_MAX);
        let mut lines: Vec<Line> = view.lanes.iter().take(shown).map(|it| self.lane(it)).collect();
        // Empty ones for jobs that wait, so that the height stays.
        lines.resize(shown, Line::new());
        if view.jobs > LANES_MAX {
            let more = view.lanes.len().saturating_sub(LANES_MAX) as u64;
            let text =
                if more > 0 { format!("    + {} more", number(more)) } else { String::new() };
            lines.push(Line::new().with(Paint::Dim, text));
        }
        lines
    }

    fn lane(&self, lane: &Lane) -> Line {
        let is_narrow = self.columns < LANE_COLUMNS;
        let time = match is_narrow {
            true => format!("{:>4} ", passed_briefly(lane.lasted)),
            false => format!("{:>2} {:>7}  ", lane.job, passed(lane.lasted)),
        };
        let more = match lane.more {
            0 => String::new(),
            _ if is_narrow => String::new(),
            more => format!(" +{}", number(more as u64)),
        };
        // An item that takes long is what the reader looks for.
        let paint = if lane.lasted >= SLOW { Paint::Warning } else { Paint::Dim };
        let room = self.columns.saturating_sub(width(&time) + width(&more));
        Line::new()
            .with(paint, time)
            .with(Paint::Plain, self.clip(&lane.item, room))
            .with(Paint::Dim, more)
    }

    fn failure(&self) -> Option<Line> {
        let failure = self.view.failure.as_ref()?;
        let label = if self.columns < 40 { "! " } else { "last failure: " };
        let room = self.columns.saturating_sub(width(label));
        let line = Line::new().with(Paint::Failed, label);
        Some(line.with(Paint::Plain, self.clip(failure, room)))
    }
}

/// An item that takes longer is marked.
const SLOW: Duration = Duration::from_secs(30);

fn figures_width(figures: &[(u8, Paint, String)]) -> usize {
    let gaps = figures.len().saturating_sub(1) * width(GAP);
    figures.iter().map(|(_, _, text)| width(text)).sum::<usize>() + gaps
}

/// Counts of keys, from the longest form to the shortest.
fn count_texts(view: &View) -> Vec<String> {
    let Some(progress) = view.progress else {
        return vec![format!("{} here", counted(view.keys_here, "key")), number(view.keys_here)];
    };
    let keys = number(progress.keys);
    match (progress.kind, progress.total) {
        (ProgressKind::Exact, Some(total)) => vec![
            format!("{keys} of {}", counted(total, "key")),
            format!("{keys} of {}", number(total)),
            keys,
        ],
        (ProgressKind::Estimated, Some(total)) => vec![
            format!("{keys} of about {} (estimated)", counted(total, "key")),
            format!("{keys} of about {}", number(total)),
            format!("{keys} of ~{}", number(total)),
            keys,
        ],
        (ProgressKind::Exact | ProgressKind::Estimated | ProgressKind::Unknown, _) => {
            vec![format!("{} (total unknown)", counted(progress.keys, "key")), keys]
        }
    }
}

fn shards(progress: &Progress) -> String {
    let Progress { shards_done, shards_parked, shards_damaged, .. } = *progress;
    let open = progress.shards_leased + progress.shards_waiting;
    let all = shards_done + shards_parked + shards_damaged + open;
    format!("{} of {} done", number(shards_done), counted(all, "shard"))
}

/// Formats a failed item for [`View::failure`].
pub(crate) fn failure_text(item: &str, message: &str) -> String {
    // The first line says what happened; the rest is in the output.
    let first = message.lines().next().unwrap_or_default();
    format!("{item}: {}", escaped(first.as_bytes()))
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
