//! A source drawn as a row of cells, such as a map of the key space. Positions are fractions of the
//! source from 0 to 1.

use std::ops::Range;

/// Less than this part of a cell is a rounding error of the positions.
pub const CELL_ROUNDING: f64 = 1e-6;

/// Calls `add` with each cell that a range touches and the part of the cell in the range.
pub fn spread<C>(cells: &mut [C], from: f64, to: f64, mut add: impl FnMut(&mut C, f64)) {
    let (from, to) = (from * cells.len() as f64, to * cells.len() as f64);
    let first = from as usize;
    for (index, cell) in cells.iter_mut().enumerate().skip(first) {
        let (start, end) = (index as f64, (index + 1) as f64);
        if start >= to {
            return;
        }
        let part = to.min(end) - from.max(start);
        if part > 0.0 {
            add(cell, part);
        }
    }
}

/// Returns the cells that a range touches; of a range without width the one in which it lies.
#[must_use]
pub fn cells_touched(from: f64, to: f64, count: usize) -> Range<usize> {
    let at = |position: f64| position * count as f64;
    let first = ((at(from) + CELL_ROUNDING) as usize).min(count.saturating_sub(1));
    // The cell that begins at the end belongs to the next range.
    let end = (at(to) - CELL_ROUNDING).ceil().max(0.0) as usize;
    first..end.max(first + 1).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_range_add_up_to_its_width() {
        let mut cells = [0.0; 4];
        spread(&mut cells, 0.1, 0.6, |cell, part| *cell += part);
        let expected = [0.6, 1.0, 0.4, 0.0];
        for (cell, expected) in cells.iter().zip(expected) {
            assert!((cell - expected).abs() < CELL_ROUNDING, "{cells:?}");
        }
    }

    #[test]
    fn cells_touched_end_at_the_border_of_the_next_range() {
        assert_eq!(cells_touched(0.25, 0.5, 4), 1..2);
        assert_eq!(cells_touched(0.25, 0.51, 4), 1..3);
        assert_eq!(cells_touched(0.0, 1.0, 4), 0..4);
    }

    #[test]
    fn range_without_width_touches_one_cell() {
        assert_eq!(cells_touched(0.5, 0.5, 4), 2..3);
        assert_eq!(cells_touched(1.0, 1.0, 4), 3..4);
        assert_eq!(cells_touched(0.3, 0.3, 0), 0..0);
    }
}
