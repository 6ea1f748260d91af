//! An outcome that no longer occurs is reported.

use rstest::rstest;

use super::command::write_missing;
use super::expected::{RARE_FROM, USUAL_FROM, rare, usual};
use super::op::{Label, Verb};
use super::report::Report;

/// Returns a report of this many operations, with every pair except `without`.
fn report(operations: u64, without: Option<(Verb, &str)>) -> Report {
    let mut report = Report { operations, ..Report::default() };
    for verb in Verb::ALL {
        for name in usual(verb).split_whitespace().chain(rare(verb).split_whitespace()) {
            if Some((verb, name)) != without {
                report.coverage.count(verb, Label::named(name));
            }
        }
    }
    report
}

#[rstest]
#[case::usual(USUAL_FROM, (Verb::RequestAction, "Replayed"), true)]
#[case::too_few(USUAL_FROM - 1, (Verb::RequestAction, "Replayed"), false)]
#[case::rare(RARE_FROM, (Verb::Withdraw, "NoOffer"), true)]
#[case::rare_and_too_few(RARE_FROM - 1, (Verb::Withdraw, "NoOffer"), false)]
fn a_missing_pair_is_reported(
    #[case] operations: u64,
    #[case] pair: (Verb, &'static str),
    #[case] is_reported: bool,
) {
    assert_eq!(report(operations, None).missing(), []);
    let broken = report(operations, Some(pair));
    assert_eq!(broken.missing() == [pair], is_reported);
    let mut text = Vec::new();
    let all = write_missing(&broken, &mut text).expect("memory takes everything");
    assert_eq!(all, !is_reported);
    let text = String::from_utf8(text).expect("a report is text");
    assert_eq!(text.contains(&format!("not met: {:?} {}", pair.0, pair.1)), is_reported);
}

#[test]
fn no_pair_is_both_usual_and_rare() {
    for verb in Verb::ALL {
        let mut names: Vec<_> = usual(verb).split_whitespace().collect();
        names.extend(rare(verb).split_whitespace());
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{verb:?}");
        assert!(names.iter().all(|name| Label::named(name).as_str() == *name), "{verb:?}");
    }
}
