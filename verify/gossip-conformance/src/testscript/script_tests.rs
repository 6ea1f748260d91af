//! Tests of the script parser and of the check that a script shows its announced order.

use super::arguments::Arguments;
use super::coverage::{Order, Watch};
use super::script::blocks;

fn watched(steps: &[(&str, &str)]) -> Result<Order, String> {
    let mut watch = Watch::new(Order::parse("renew: StaleFence < LeaseExpired").unwrap());
    for (line, label) in steps {
        watch.note(&Arguments::parse(line).unwrap(), label);
    }
    watch.close()
}

#[test]
fn a_script_is_cut_into_blocks_and_written_back_unchanged() {
    let text = "# One.\nrenew lease=a\n---\nrenewed\n\n# Two.\n\nshow shard=0\n---\nrow\n";
    let blocks = blocks(text).unwrap();
    assert_eq!(blocks[1].instructions().collect::<Vec<_>>(), [(8, "show shard=0")]);
    let mut written = String::new();
    for block in &blocks {
        if !written.is_empty() {
            written.push('\n');
        }
        let output: Vec<String> = block.expected.iter().map(ToString::to_string).collect();
        block.write(&output, &mut written);
    }
    assert_eq!(written, text);
}

#[test]
fn commands_without_output_are_refused() {
    assert_eq!(blocks("renew lease=a\n").unwrap_err().line, 1);
}

#[test]
fn arguments_are_named_once_and_taken_once() {
    assert!(Arguments::parse("renew lease").is_err());
    assert!(Arguments::parse("renew lease=a lease=b").is_err());
    let mut arguments = Arguments::parse("renew lease=a now=x").unwrap();
    assert_eq!(arguments.take("lease").as_deref(), Some("a"));
    assert!(arguments.number("now").is_err());
    assert!(Arguments::parse("renew lease=a").unwrap().finish().is_err());
}

#[test]
fn an_order_is_shown_by_one_changed_argument() {
    let steps = [("renew lease=a now=5", "StaleFence"), ("renew lease=b now=5", "LeaseExpired")];
    assert!(watched(&steps).is_ok());
}

#[test]
fn an_order_is_shown_by_changed_state_and_the_same_arguments() {
    let steps = [
        ("renew lease=a", "LeaseExpired"),
        ("acquire shard=0", "executed"),
        ("renew lease=a", "StaleFence"),
    ];
    assert!(watched(&steps).is_ok());
}

#[test]
fn an_order_is_not_shown_by_wrong_answers_or_by_too_many_changes() {
    let wrong = [("renew lease=a", "StaleFence"), ("renew lease=b", "StaleFence")];
    let twice = [("renew lease=a now=1", "StaleFence"), ("renew lease=b now=2", "LeaseExpired")];
    let nothing = [("renew lease=a", "StaleFence"), ("renew lease=a", "LeaseExpired")];
    for steps in [&wrong, &twice, &nothing] {
        assert!(watched(steps).is_err());
    }
    assert!(watched(&[("renew lease=a", "StaleFence")]).is_err());
}
