//! The page of detected secrets is that of the rules.

use std::fmt::Write as _;

use gossip_scan::{Confidence, RuleSet};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/detected.md");

/// Environment variable that makes the test rewrite the page.
const REWRITE: &str = "GOSSIP_REWRITE";

#[test]
fn the_page_lists_every_rule() {
    let page = page();
    #[expect(clippy::disallowed_methods, reason = "the flag of a test")]
    if std::env::var(REWRITE).is_ok() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let saved = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert_eq!(saved, page, "set {REWRITE}=1 to rewrite docs/detected.md");
}

fn page() -> String {
    let rules = RuleSet::built_in();
    let count = |level| rules.iter().filter(|rule| rule.confidence == level).count();
    let mut page = format!(
        "# Detected secrets\n\n\
         The {} built-in rules of `gossip scan`: {} of high, {} of medium and {} of low \
         confidence.\n\
         *Check* is a test of a token without asking its vendor; a token that fails has a lower \
         confidence.\n\
         Each kind is also found in base64, in UTF-16, behind percent escapes, and inside \
         archives.\n\n\
         This page is generated: `GOSSIP_REWRITE=1 cargo test -p gossip-scan --test \
         documented`.\n\n\
         | rule | kind | confidence | check |\n|---|---|---|---|\n",
        rules.len(),
        count(Confidence::High),
        count(Confidence::Medium),
        count(Confidence::Low),
    );
    for rule in rules.iter() {
        let check = match rule.validator.as_str() {
            "none" => "–",
            check => check,
        };
        let _ = writeln!(page, "| `{}` | {} | {} | {check} |", rule.id, rule.name, rule.confidence);
    }
    page
}
