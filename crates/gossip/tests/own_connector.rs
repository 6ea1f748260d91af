//! The test in the example of an own connector, which cargo builds as a program only.

#[path = "../examples/own_connector.rs"]
#[expect(dead_code, reason = "the example is a program")]
mod own_connector;

/// The goal: a source of one's own takes at most forty lines.
#[test]
fn connector_has_at_most_forty_lines_of_code() {
    let source = include_str!("../examples/own_connector.rs");
    let (_, connector) = source.split_once("/// All words").unwrap_or_default();
    let (connector, _) = connector.split_once("#[cfg(test)]").unwrap_or_default();
    let lines = connector.lines().filter(|line| !line.trim().is_empty());
    assert!((10..=40).contains(&lines.count()), "{connector}");
}
