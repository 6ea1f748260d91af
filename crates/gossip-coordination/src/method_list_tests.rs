//! The twins stay twins: same methods, same parameters, same answers.
//!
//! The lists are read from the source, because nothing in the language compares two traits. What
//! differs by design (`async`, `impl Future<Output = …> + Send`) is taken off first.

const TRAITS: &str = include_str!("traits.rs");
const RUN_MANAGEMENT: &str = include_str!("run_management.rs");
const FACADE: &str = include_str!("facade.rs");
const SESSION: &str = include_str!("session.rs");
const ASYNC_SESSION: &str = include_str!("async_session.rs");
const ADAPTERS: &str = include_str!("adapters.rs");

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

/// Signatures of the list in `adapters.rs`, which has no `&mut self`.
fn handed_on(block: &str) -> Vec<String> {
    let add_self = |signature: String| signature.replacen('(', "(&mutself,", 1).replace(",)", ")");
    methods(block).into_iter().map(add_self).collect()
}

#[track_caller]
fn assert_twins(one: &[String], other: &[String], at_least: usize) {
    assert_eq!(one, other);
    assert!(one.len() >= at_least, "only {} methods were found", one.len());
}

#[test]
fn the_backends_are_twins() {
    let blocking = methods(block(TRAITS, "pub trait CoordinationBackend {"));
    let asynchronous = methods(block(TRAITS, "pub trait AsyncCoordinationBackend: Send {"));
    assert_twins(&blocking, &asynchronous, 12);
}

#[test]
fn run_managements_are_twins() {
    let blocking = methods(block(RUN_MANAGEMENT, "pub trait RunManagement {"));
    let asynchronous = methods(block(RUN_MANAGEMENT, "pub trait AsyncRunManagement: Send {"));
    assert_twins(&blocking, &asynchronous, 21);
}

#[test]
fn claimings_are_twins() {
    let blocking = methods(block(FACADE, "pub trait ShardClaiming: "));
    let asynchronous = methods(block(FACADE, "pub trait AsyncShardClaiming: "));
    assert_twins(&blocking, &asynchronous, 3);
}

#[test]
fn sessions_are_twins() {
    let blocking = methods(block(SESSION, "impl<'b, B: CoordinationBackend> WorkerSession<"));
    let opening = "impl<'b, B: AsyncCoordinationBackend> AsyncWorkerSession<";
    assert_twins(&blocking, &methods(block(ASYNC_SESSION, opening)), 12);
    // What both know without asking is written once, for both.
    assert!(SESSION.contains("\nsession_accessors!(WorkerSession);"));
    assert!(ASYNC_SESSION.contains("\nsession_accessors!(AsyncWorkerSession);"));
}

/// The compiler does not ask for methods that have a default, and a backend's own better way would
/// be lost if they were not handed on.
#[test]
fn the_adapters_hand_every_method_on() {
    let shards = methods(block(TRAITS, "pub trait CoordinationBackend {"));
    assert_eq!(handed_on(block(ADAPTERS, "hand_on! { CoordinationBackend, ")), shards);
    let runs = methods(block(RUN_MANAGEMENT, "pub trait RunManagement {"));
    assert_eq!(handed_on(block(ADAPTERS, "hand_on! { RunManagement, ")), runs);
    let claims = methods(block(FACADE, "pub trait ShardClaiming: "));
    let ready = methods(block(ADAPTERS, "impl<B: ShardClaiming + Send> AsyncShardClaiming for"));
    let blocking = methods(block(ADAPTERS, "impl<A: AsyncShardClaiming> ShardClaiming for"));
    assert_eq!((&ready, &blocking), (&claims, &claims));
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
