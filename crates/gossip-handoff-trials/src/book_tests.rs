//! The book notices what it is there for.

use std::collections::BTreeMap;

use crate::book::Book;
use crate::journal::{Line, What};

fn line(at: u64, fence: u64, what: What) -> Line {
    Line { at, shard: 0, fence, what }
}

/// A move from fence 1 to fence 2 in which nothing goes wrong.
fn good() -> Vec<Line> {
    vec![
        line(1, 1, What::Claimed),
        line(2, 1, What::Did(0)),
        line(3, 1, What::Did(1)),
        line(4, 1, What::Froze),
        line(6, 2, What::Accepted),
        line(7, 2, What::Did(2)),
    ]
}

fn verdict(lines: &[Line]) -> Result<u64, String> {
    let mut book = Book::default();
    book.enter(lines);
    let reached = BTreeMap::from([(0, (0, Some(2)))]);
    book.check(&reached).map(|sum| sum.redone).map_err(|error| error.to_string())
}

#[test]
fn a_good_move_passes() {
    assert_eq!(verdict(&good()), Ok(0));
    let mut book = Book::default();
    book.enter(&good());
    let sum = book.check(&BTreeMap::from([(0, (0, Some(2)))])).unwrap();
    assert_eq!((sum.moves, sum.keys, sum.gaps.percentile(50)), (1, 3, 3));
}

#[test]
fn a_lost_key_is_noticed() {
    let mut lines = good();
    lines.remove(2);
    assert!(verdict(&lines).unwrap_err().contains("lost"));
}

#[test]
fn a_key_that_a_move_redoes_is_noticed_and_one_after_a_takeover_is_counted() {
    let mut lines = good();
    lines.push(line(8, 2, What::Did(1)));
    assert!(verdict(&lines).unwrap_err().contains("redone"));
    lines[4].what = What::Claimed;
    assert_eq!(verdict(&lines), Ok(1));
}

#[test]
fn a_key_that_is_done_twice_under_one_fence_is_noticed() {
    let mut lines = good();
    lines.push(line(8, 2, What::Did(2)));
    assert!(verdict(&lines).unwrap_err().contains("twice"));
}

#[test]
fn an_owner_that_works_after_the_next_has_it_is_noticed() {
    let mut lines = good();
    lines.push(line(7, 1, What::Did(9)));
    assert!(verdict(&lines).unwrap_err().contains("after"));
}
