//! Writes a file of the copy: each mutant wraps its place in a switch.

use std::ops::Range;

use crate::generate::Mutant;

/// Placeholder of the mutant's switch in [`Mutant::before`].
pub(crate) const SWITCH: char = '\u{0}';

/// A file of the copy.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// Text that belongs to one mutant, in no order.
    pub(crate) pieces: Vec<Piece>,
}

/// Text of a mutant in a file of the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) range: Range<usize>,
    /// The number of the mutant.
    pub(crate) mutant: u32,
}

/// An insertion, in the order in which they are written.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Insertion<'m> {
    place: usize,
    /// Ends before starts, and starts of functions before others.
    phase: u8,
    /// At one place inner mutants end first and outer ones start first.
    order: (usize, usize),
    mutant: u32,
    text: &'m str,
}

/// Returns `text` without the ranges of `removed`, and with the switches of the mutants. Two ranges
/// are disjoint, or one contains the other.
pub(crate) fn rewrite(
    text: &str,
    removed: &[Range<usize>],
    mutants: &[(u32, &Mutant)],
) -> Rewritten {
    let mut insertions = Vec::new();
    for (index, (number, mutant)) in mutants.iter().enumerate() {
        let Range { start, end } = mutant.site;
        let mut add = |place, phase, order, text| {
            insertions.push(Insertion { place, phase, order, mutant: *number, text });
        };
        if start == end {
            add(start, 1, (index, 0), mutant.before.as_str());
            continue;
        }
        add(start, 2, (usize::MAX - end, index), mutant.before.as_str());
        add(end, 0, (usize::MAX - start, usize::MAX - index), mutant.after.as_str());
    }
    insertions.sort_unstable();
    let mut removed = removed.to_vec();
    removed.sort_unstable_by_key(|range| range.start);
    let mut written = Rewritten { text: String::with_capacity(2 * text.len()), pieces: Vec::new() };
    let (mut next, mut removed) = (0, removed.into_iter().peekable());
    let mut copy_until = |place: usize, to: &mut String| {
        while let Some(range) = removed.next_if(|range| range.start < place) {
            to.push_str(&text[next..range.start]);
            next = range.end;
        }
        to.push_str(&text[next..place]);
        next = place;
    };
    for insertion in insertions {
        copy_until(insertion.place, &mut written.text);
        let start = written.text.len();
        let switch = format!("crate::mutation_switch::on({})", insertion.mutant);
        written.text.push_str(&insertion.text.replace(SWITCH, &switch));
        let range = start..written.text.len();
        written.pieces.push(Piece { range, mutant: insertion.mutant });
    }
    copy_until(text.len(), &mut written.text);
    written
}

/// The module that every mutated crate gets: the switch, read once from the environment.
pub(crate) const MODULE: &str = r#"
/// The switch of generated mutants.
#[allow(warnings, clippy::all)]
mod mutation_switch {
    use std::sync::atomic::{AtomicU32, Ordering};

    const UNREAD: u32 = u32::MAX;
    static ACTIVE: AtomicU32 = AtomicU32::new(UNREAD);

    #[inline]
    pub(crate) fn on(mutant: u32) -> bool {
        let active = ACTIVE.load(Ordering::Relaxed);
        if active == UNREAD { read() == mutant } else { active == mutant }
    }

    #[cold]
    #[inline(never)]
    fn read() -> u32 {
        let value = std::env::var("GOSSIP_MUTATION").unwrap_or_else(|_| "0".to_owned());
        let active = value.parse().expect("the variable is the number of a mutant");
        ACTIVE.store(active, Ordering::Relaxed);
        active
    }
}
"#;

/// The environment variable of [`MODULE`].
pub(crate) const VARIABLE: &str = "GOSSIP_MUTATION";
