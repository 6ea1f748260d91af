use super::*;

const TEXT: &str = "\
    = 0 5 clock 1005\n\
    > 1 10 acquire 3 1000\n< 1 20 granted 1 0 16000\n\
    > 2 30 checkpoint 3 1 5 77 2000\n< 2 40 executed\n\
    > 3 50 renew 3 1 6000\n< 3 60 renewed 21000\n\
    > 4 70 checkpoint 3 1 9 78 7000\n< 4 80 unknown\n\
    > 5 81 acquire 3 7000\n< 5 82 unknown\n\
    > 6 83 acquire 3 7000\n< 6 84 refused AlreadyLeased\n\
    > 7 85 renew 3 1 8000\n< 7 86 refused StaleFence\n\
    > 8 87 renew 3 1 8000\n< 8 88 refused LeaseExpired\n\
    > 9 89 checkpoint 3 1 9 78 7000\n< 9 90 failed\n\
    > 10 91 complete 3 1 20 79 9000\n";

fn histories() -> Histories {
    let mut histories = Histories::default();
    histories.add(4, TEXT).unwrap();
    histories
}

#[test]
fn each_line_becomes_the_operation_it_describes() {
    let ByShard { mut shards, others } = histories().by_shard().unwrap();
    assert!(others.is_empty());
    let mut operations = shards.remove(&3).unwrap();
    operations.sort_by_key(|it| it.call);
    let of = |call, end, effect| Operation { worker: 4, call, end, effect };
    let write = |op, write, answer| Effect::Write { fence: 1, op, write, answer };
    let expected = [
        of(10, Some(20), Effect::Grant { fence: 1, cursor: 0, deadline: 16_000, now: 1_000 }),
        of(30, Some(40), write(77, Write::Checkpoint { cursor: 5 }, Answer::Executed)),
        of(50, Some(60), Effect::Renew { fence: 1, deadline: 21_000, now: 6_000 }),
        of(70, None, write(78, Write::Checkpoint { cursor: 9 }, Answer::Lost)),
        of(81, None, Effect::LostGrant),
        of(85, Some(86), Effect::Stale { fence: 1 }),
        // The process ended before the call returned.
        of(91, None, write(79, Write::Complete { cursor: 20 }, Answer::Lost)),
    ];
    assert_eq!(operations, expected);
    assert_eq!(histories().counts(), [10, 3]);
    assert_eq!(histories().answered().len(), 6);
    assert_eq!(histories().clock_offset(4, 1_000), Some(5));
}

#[test]
fn operations_that_the_model_lacks_are_listed() {
    let mut histories = Histories::default();
    histories.add(0, "> 1 10 other split_replace\n< 1 11 executed\n").unwrap();
    assert_eq!(histories.by_shard().unwrap().others, ["split_replace"]);
}

#[test]
fn malformed_histories_are_errors() {
    for text in ["x 1 2 acquire 3", "> 1", "< 1 2 granted", "> 1 x acquire 3"] {
        assert!(Histories::default().add(0, text).is_err(), "{text}");
    }
    for text in ["> 1 2 acquire 3 5\n< 1 3 granted 4", "> 1 2 checkpoint 3\n< 1 3 executed"] {
        let mut histories = Histories::default();
        histories.add(0, text).unwrap();
        assert!(histories.by_shard().is_err(), "{text}");
    }
}
