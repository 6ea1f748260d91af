//! An outcome is the same result however it came about.

use crate::IdempotentOutcome::{self, Executed, Replayed};

#[test]
fn an_outcome_gives_its_result_either_way() {
    assert_eq!((Executed(7).into_inner(), Replayed(7).into_inner()), (7, 7));
}

#[test]
fn an_outcome_knows_how_it_came_about() {
    assert_eq!((Executed(()).is_executed(), Executed(()).is_replay()), (true, false));
    assert_eq!((Replayed(()).is_executed(), Replayed(()).is_replay()), (false, true));
    assert_ne!(Executed(7), Replayed(7));
}

#[test]
fn transforming_the_result_keeps_how_it_came_about() {
    assert_eq!(Executed(7).map(|number| number + 1), Executed(8));
    assert_eq!(Replayed(7).map(|number| number.to_string()), Replayed("7".to_owned()));
}

#[test]
fn borrowing_keeps_how_it_came_about() {
    let outcome: IdempotentOutcome<String> = Replayed("seven".to_owned());
    assert_eq!(outcome.as_ref(), Replayed(&"seven".to_owned()));
    assert!(Executed(1).as_ref().is_executed());
}
