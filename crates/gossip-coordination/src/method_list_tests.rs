//! Claiming has the same methods in its blocking and asynchronous forms.
//!
//! Both are written by hand, and the language cannot compare two traits, so the signatures are read
//! from the source. The parts that differ by design (`async`, `impl Future<Output = …> + Send`) are
//! removed first.

const FACADE: &str = include_str!("facade.rs");

/// The text between the line that begins with `opening` and the next line that is a closing brace.
pub(crate) fn block<'s>(source: &'s str, opening: &str) -> &'s str {
    let (_, rest) = source.split_once(&format!("\n{opening}")).expect("the block is there");
    rest.split_once("\n}").expect("the block ends").0
}

/// The signatures in a block, each on one line without spaces, in their order.
pub(crate) fn methods(block: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = block.lines();
    while let Some(line) = lines.next() {
        let words = line.trim_start().trim_start_matches("pub ").trim_start_matches("const ");
        let Some(start) = words.trim_start_matches("async ").strip_prefix("fn ") else { continue };
        let mut signature = start.to_owned();
        while !signature.ends_with([';', '{']) {
            signature.push_str(lines.next().expect("a signature ends").trim());
        }
        found.push(normal(&signature));
    }
    found
}

/// A signature without what an asynchronous one adds.
fn normal(signature: &str) -> String {
    let bare = signature.trim_end_matches([';', '{']).replace(' ', "").replace(",)", ")");
    match bare.split_once("->implFuture<Output=") {
        Some((call, answer)) => {
            let answer = answer.strip_suffix(">+Send").expect("every future is Send");
            // Answering nothing is written down only on the asynchronous side.
            if answer == "()" { call.to_owned() } else { format!("{call}->{answer}") }
        }
        None => bare,
    }
}

#[track_caller]
fn assert_twins(one: &[String], other: &[String], at_least: usize) {
    assert_eq!(one, other);
    assert!(one.len() >= at_least, "only {} methods were found", one.len());
}

#[test]
fn claimings_are_twins() {
    let blocking = methods(block(FACADE, "pub trait ShardClaiming: "));
    let asynchronous = methods(block(FACADE, "pub trait AsyncShardClaiming: "));
    assert_twins(&blocking, &asynchronous, 3);
}

/// The test of the tester: a missing method, another name, another type and another order differ.
#[test]
fn a_difference_is_noticed() {
    let one =
        methods("    fn a(\n        &mut self,\n        now: u64,\n    ) -> u8;\n    fn b();\n");
    assert_eq!(one, ["a(&mutself,now:u64)->u8", "b()"]);
    let twin = "    async fn a(&mut self, now: u64) -> impl Future<Output = u8> + Send;\n    fn b() -> impl Future<Output = ()> + Send {\n";
    assert_eq!(methods(twin), one);
    for other in ["now: u32) -> u8", "then: u64) -> u8", "now: u64) -> u16"] {
        assert_ne!(methods(&format!("    fn a(&mut self, {other};\n    fn b();\n")), one);
    }
    assert_ne!(methods("    fn b();\n"), one);
}
