//! `rules`: lists, shows, checks and tests detection rules.

use std::path::{Path, PathBuf};

use gossip::secrets::{Rule, RuleError, RuleSet, ScanOptions, Scanner};

use crate::args::{Format, Global};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record, count};
use crate::scan_args::RulesCommand;

/// Samples of a rule that `rules test` looks for, per form.
const SAMPLES: u64 = 8;

pub(crate) fn run(
    global: &Global,
    command: RulesCommand,
    console: &Console,
) -> Result<Code, Failure> {
    match command {
        RulesCommand::List(files) => list(global.output, &read(&files.rules, true)?),
        RulesCommand::Show { id, files } => show(global.output, &read(&files.rules, true)?, &id),
        RulesCommand::Check { files } => check(&files, console),
        RulesCommand::Test { ids, files } => test(&read(&files.rules, true)?, &ids, console),
    }
}

/// Reads rule files in their order; `built_in` rules come first.
pub(crate) fn read(files: &[PathBuf], built_in: bool) -> Result<RuleSet, Failure> {
    let mut rules = if built_in { RuleSet::built_in() } else { RuleSet::empty() };
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::new(Code::Usage, format!("cannot read {}", file.display())).why(error)
        })?;
        // In their order: a later file may replace or disable a rule of an earlier one.
        rules.merge(&text).map_err(|error| refused(Some(file), &error))?;
    }
    Ok(rules)
}

/// Describes a rule that is refused; `file` is the file it is in, if that is known.
pub(crate) fn refused(file: Option<&Path>, error: &RuleError) -> Failure {
    let what = match (file, error) {
        (Some(file), RuleError::Syntax { line, column, .. }) => {
            format!("invalid rules: {}:{line}:{column}", file.display())
        }
        (Some(file), _) => format!("invalid rules: {}", file.display()),
        (None, _) => "invalid rules".to_owned(),
    };
    let why = match error {
        RuleError::Syntax { reason, .. } => reason.clone(),
        error => error.to_string(),
    };
    Failure::new(Code::Usage, what).why(why).next("docs/rules.md describes the format")
}

fn list(format: Format, rules: &RuleSet) -> Result<Code, Failure> {
    let built_in = RuleSet::built_in();
    let record = |rule: &Rule| {
        let origin = match built_in.rule(&rule.id) {
            Some(original) if original == rule => "built-in",
            Some(_) => "replaced",
            None => "added",
        };
        Record::new()
            .with("id", rule.id.as_str())
            .with("name", rule.name.as_str())
            .with("confidence", rule.confidence.name())
            .with("check", rule.validator.as_str())
            .with("origin", origin)
    };
    let records: Vec<_> = rules.iter().map(record).collect();
    output::list(format, &["id", "name", "confidence", "check", "origin"], &records)?;
    Ok(Code::Complete)
}

fn show(format: Format, rules: &RuleSet, id: &str) -> Result<Code, Failure> {
    let rule = rules.rule(id).ok_or_else(|| unknown(id))?;
    let list = |texts: &[String]| texts.join(" ");
    let record = Record::new()
        .with("id", rule.id.as_str())
        .with("name", rule.name.as_str())
        .with("anchors", list(&rule.anchors))
        .with("words", list(&rule.words))
        .with("regex", rule.regex.as_str())
        .with("max_len", rule.max_len)
        .with("files", list(&rule.files))
        .with("nearby", list(&rule.nearby))
        .with("check", rule.validator.as_str())
        .with("confidence", rule.confidence.name())
        .with("generic", rule.generic)
        .with("entropy", rule.entropy.map_or(serde_json::Value::Null, Into::into));
    output::one(format, &record)?;
    Ok(Code::Complete)
}

fn unknown(id: &str) -> Failure {
    Failure::new(Code::Usage, format!("no such rule: {id}"))
        .next("list the rules: gossip rules list")
}

fn check(files: &[PathBuf], console: &Console) -> Result<Code, Failure> {
    let mut code = Code::Complete;
    for file in files {
        // Each file alone, so that a mistake in one does not hide those of the next.
        let checked = read(std::slice::from_ref(file), true).and_then(|rules| {
            Scanner::new(&rules, ScanOptions::default())
                .map(|_| rules.len())
                .map_err(|error| refused(Some(file), &error))
        });
        match checked {
            Ok(rules) => {
                let rules = count(rules as u64, "rule");
                console.note(&format!("{}: ok, {rules} with the built-in ones", file.display()));
            }
            Err(failure) => {
                // The other files are checked all the same.
                code = failure.code;
                console.failure(&failure);
            }
        }
    }
    Ok(code)
}

/// A form in which a secret occurs.
type Form = fn(&[u8]) -> Vec<u8>;

const FORMS: [(&str, Form); 3] = [
    ("plain", |text| [b"text before\n", text, b"\ntext behind\n"].concat()),
    ("UTF-16", |text| text.iter().flat_map(|byte| [*byte, 0]).collect()),
    ("zip", |text| stored_zip(text)),
];

fn test(rules: &RuleSet, ids: &[String], console: &Console) -> Result<Code, Failure> {
    if let Some(id) = ids.iter().find(|id| rules.rule(id).is_none()) {
        return Err(unknown(id));
    }
    let scanner = Scanner::new(rules, ScanOptions::default());
    let scanner = scanner.map_err(|error| refused(None, &error))?;
    let (mut scratch, mut tested, mut failed) = (scanner.scratch(), 0, 0);
    for rule in rules.iter().filter(|rule| ids.is_empty() || ids.contains(&rule.id)) {
        tested += 1;
        // A rule for certain file names applies to no other, so the sample needs a fitting one.
        let name = rule.files.first().map_or_else(|| "x".to_owned(), |it| it.replace('*', "x"));
        let mut missed = Vec::new();
        for (form, encode) in FORMS {
            // The name of an archive's member is fixed, so rules for file names do not apply to it.
            if form == "zip" && !rule.files.is_empty() {
                continue;
            }
            for seed in 0..SAMPLES {
                let sample = rule.mint(seed).map_err(|error| refused(None, &error))?;
                let mut is_found = false;
                scanner.scan_bytes(&mut scratch, name.as_bytes(), &encode(&sample), |found| {
                    // The rule itself: another one that finds the sample as well does not count.
                    is_found |= *found.rule == *rule.id;
                });
                if !is_found {
                    missed.push(form);
                    break;
                }
            }
        }
        if !missed.is_empty() {
            failed += 1;
            let forms = missed.join(", ");
            console.problem(&format!("{}: samples are not found: {forms}", rule.id));
        }
    }
    let text = format!("{} tested, {failed} failed", count(tested, "rule"));
    if failed > 0 {
        console.problem(&text);
        return Ok(Code::Internal);
    }
    console.note(&text);
    Ok(Code::Complete)
}

/// Returns a zip archive with one member, which is not compressed.
fn stored_zip(content: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"x";
    let size = u32::try_from(content.len()).expect("a sample is short").to_le_bytes();
    // Version, flags, method, time, date; the checksum is not verified, because a damaged member is
    // searched as far as it goes.
    let fixed = [10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let lens = [1, 0, 0, 0];
    let header = [&fixed[..], &size, &size, &lens].concat();
    let local = [b"PK\x03\x04", &header[..], NAME, content].concat();
    let central = [b"PK\x01\x02\x0a\x00", &header[..], &[0; 10], &[0; 4], NAME].concat();
    let at = u32::try_from(local.len()).expect("a sample is short").to_le_bytes();
    let central_len = u32::try_from(central.len()).expect("a name is short").to_le_bytes();
    let end = [b"PK\x05\x06", &[0; 4][..], &[1, 0, 1, 0], &central_len, &at, &[0; 2]].concat();
    [local, central, end].concat()
}
