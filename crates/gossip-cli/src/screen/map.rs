//! The keyspace map: one cell for each part of the source.

use gossip::runtime::{CELL_ROUNDING, cells_touched, spread};

use super::style::{Line, Paint, Style};

/// A range of the source in one state. Positions are fractions from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) from: f64,
    /// Everything before this is done.
    pub(crate) covered: f64,
    pub(crate) to: f64,
    /// What the rest is.
    pub(crate) rest: Rest,
}

/// The state of the keys of a shard that are not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Leased by the worker with this number.
    Leased(usize),
    /// Leased by a worker that does not renew the lease.
    Stalled,
    Waiting,
    Failed,
}

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Done,
    /// In work by a worker; the flag says whether most of it is done.
    Leased(usize, bool),
    Stalled,
    /// No worker has it; the flag says whether a part is done.
    Waiting(bool),
    Failed,
}

/// Returns the cells of a map. A failed item is shown however small it is; otherwise a cell shows
/// what most of its unfinished keys are.
pub(crate) fn cells(ranges: &[Range], count: usize) -> Vec<Cell> {
    let mut sums = vec![Sum::default(); count];
    for range in ranges {
        range.add_to(&mut sums);
    }
    sums.iter().map(Sum::cell).collect()
}

impl Range {
    fn add_to(&self, sums: &mut [Sum]) {
        if self.rest == Rest::Failed {
            let touched = cells_touched(self.covered, self.to, sums.len());
            for sum in &mut sums[touched] {
                sum.has_failed = true;
            }
        }
        spread(sums, self.from, self.covered, |sum, part| sum.done += part);
        let rest = self.rest;
        spread(sums, self.covered, self.to, |sum, part| sum.add(rest, part));
    }
}

/// The parts of one cell, each from 0 to 1.
#[derive(Clone, Debug, Default)]
struct Sum {
    done: f64,
    waiting: f64,
    stalled: f64,
    /// The worker with the largest part so far, and that part.
    leased: Option<(usize, f64)>,
    has_failed: bool,
}

impl Sum {
    fn add(&mut self, rest: Rest, part: f64) {
        match rest {
            Rest::Failed => {}
            Rest::Waiting => self.waiting += part,
            Rest::Stalled => self.stalled += part,
            Rest::Leased(worker) => {
                self.leased = Some(match self.leased {
                    Some((same, sum)) if same == worker => (same, sum + part),
                    Some((other, sum)) if sum >= part => (other, sum),
                    _ => (worker, part),
                });
            }
        }
    }

    fn cell(&self) -> Cell {
        // First, because a user has to see a failure however small its part of the cell is.
        if self.has_failed {
            return Cell::Failed;
        }
        let leased = self.leased.map_or(0.0, |(_, part)| part);
        // Only if it is no smaller part than the live one: a cell can show one worker.
        if self.stalled > CELL_ROUNDING && self.stalled >= leased {
            return Cell::Stalled;
        }
        match self.leased {
            Some((worker, part)) if part > CELL_ROUNDING => Cell::Leased(worker, self.done >= 0.5),
            _ if self.waiting <= CELL_ROUNDING && self.done > CELL_ROUNDING => Cell::Done,
            _ => Cell::Waiting(self.done > CELL_ROUNDING),
        }
    }
}

impl Cell {
    /// Returns the sign of a cell. In ASCII letters distinguish the workers, because there
    /// may be no colours.
    pub(crate) fn sign(self, style: Style) -> char {
        match (self, style.is_ascii) {
            (Self::Done, false) => '█',
            (Self::Leased(_, true), false) => '▓',
            (Self::Leased(_, false), false) => '▒',
            (Self::Stalled, false) => '░',
            (Self::Waiting(true), false) => '▖',
            (Self::Waiting(false), false) => '·',
            (Self::Failed, false) => '✗',
            (Self::Done, true) => '#',
            (Self::Leased(worker, true), true) => worker_letter(worker).to_ascii_uppercase(),
            (Self::Leased(worker, false), true) => worker_letter(worker),
            (Self::Stalled, true) => '?',
            (Self::Waiting(true), true) => ':',
            (Self::Waiting(false), true) => '.',
            (Self::Failed, true) => '!',
        }
    }

    pub(crate) const fn paint(self) -> Paint {
        match self {
            Self::Done => Paint::Done,
            Self::Leased(worker, _) => Paint::Worker(worker),
            Self::Stalled | Self::Waiting(_) => Paint::Dim,
            Self::Failed => Paint::Failed,
        }
    }
}

/// Returns the letter of a worker; letters repeat after the last one.
pub(crate) fn worker_letter(number: usize) -> char {
    char::from(b'a' + u8::try_from(number % 26).expect("a remainder below 26"))
}

/// Returns the lines of a map with `columns` cells each.
pub(crate) fn lines(ranges: &[Range], columns: usize, rows: usize, style: Style) -> Vec<Line> {
    let cells = cells(ranges, columns * rows);
    let line = |row: &[Cell]| {
        row.iter().fold(Line::new(), |line, cell| line.with(cell.paint(), cell.sign(style)))
    };
    cells.chunks(columns.max(1)).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(from: f64, covered: f64, to: f64, rest: Rest) -> Range {
        Range { from, covered, to, rest }
    }

    fn shown(ranges: &[Range], count: usize) -> String {
        cells(ranges, count).into_iter().map(|cell| cell.sign(Style::PLAIN)).collect()
    }

    #[test]
    fn each_cell_shows_most_of_its_keys() {
        let ranges = [
            range(0.0, 0.3, 0.3, Rest::Waiting),
            range(0.3, 0.36, 0.5, Rest::Leased(0)),
            range(0.5, 0.5, 0.7, Rest::Stalled),
            range(0.7, 0.75, 0.9, Rest::Waiting),
            range(0.9, 0.9, 0.9, Rest::Failed),
            range(0.9, 0.9, 1.0, Rest::Waiting),
        ];
        assert_eq!(shown(&ranges, 10), "███▓▒░░▖·✗");
    }

    #[test]
    fn every_number_of_cells_shows_a_finished_source_as_done() {
        let parts: Vec<_> = (0..7)
            .map(|part| {
                let (from, to) = (f64::from(part) / 7.0, f64::from(part + 1) / 7.0);
                range(from, to, to, Rest::Waiting)
            })
            .collect();
        for count in 0..300 {
            assert_eq!(cells(&parts, count), vec![Cell::Done; count]);
        }
    }

    #[test]
    fn failed_item_is_shown_at_both_ends_and_in_a_source_of_one() {
        for (at, shown_as) in [(0.0, "✗··"), (1.0, "··✗")] {
            let ranges = [range(at, at, at, Rest::Failed), range(0.0, 0.0, 1.0, Rest::Waiting)];
            assert_eq!(shown(&ranges, 3), shown_as);
        }
        assert_eq!(shown(&[range(0.0, 0.0, 1.0, Rest::Failed)], 4), "✗✗✗✗");
        assert_eq!(shown(&[range(0.0, 0.0, 0.5, Rest::Failed)], 2), "✗·");
    }

    #[test]
    fn source_without_shards_waits() {
        assert_eq!(shown(&[], 3), "···");
        assert_eq!(shown(&[], 0), "");
    }
}
