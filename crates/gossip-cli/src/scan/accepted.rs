//! Which findings count: comments, allow-list, baseline, confidence.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gossip::secrets::{
    AllowList, Baseline, Confidence, FindingReport, Found, Gap, ItemFindings, RuleError,
};

use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::progress::escaped;
use crate::scan_args::ReportArgs;

/// The allow-list of a source, in its directory.
const ALLOW_FILE: &str = ".gossip-allow.toml";

/// The rule of an entry that accepts parts that cannot be read. An entry without a rule does, too.
const UNREAD: &str = "unread";

/// Why a finding is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// A comment on the line. Its reason is not repeated: the rest of the line may be secret.
    Comment,
    /// An entry of the allow-list, with its reason.
    AllowList(String),
    /// The baseline knows it.
    Baseline,
}

impl Acceptance {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Comment => "comment",
            Self::AllowList(_) => "allow-list",
            Self::Baseline => "baseline",
        }
    }

    /// Returns the kind of its suppression in SARIF: where it is written down.
    pub(crate) const fn sarif_kind(&self) -> &'static str {
        match self {
            Self::Comment => "inSource",
            Self::AllowList(_) | Self::Baseline => "external",
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Comment => "gossip:allow on its line",
            Self::AllowList(reason) => reason,
            Self::Baseline => "in the baseline",
        }
    }
}

/// A finding and whether it is accepted.
#[derive(Clone, Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) found: Found<'a>,
    pub(crate) accepted: Option<Acceptance>,
}

/// What a report accepts.
pub(crate) struct Judge {
    allow: AllowList,
    baseline: Baseline,
    least: Confidence,
}

impl Judge {
    /// Reads the files of a report. `source` is what the user typed, whose directory may have an
    /// allow-list.
    pub(crate) fn read(
        args: &ReportArgs,
        source: &OsStr,
        console: &Console,
    ) -> Result<Self, Failure> {
        // A directory without the file is the usual case and no error.
        let found = default_file(source).filter(|path| path.is_file());
        let allow = match args.allow_list.as_ref().or(found.as_ref()) {
            Some(path) => {
                let list =
                    AllowList::parse(&text(path)?).map_err(|error| bad_list(path, &error))?;
                if args.allow_list.is_none() {
                    // It is part of the scanned directory, so the user should see that it was used.
                    console.detail(&format!("allow-list: {}", path.display()));
                }
                list
            }
            None => AllowList::default(),
        };
        let baseline = match &args.baseline {
            Some(path) => Baseline::parse(&text(path)?).map_err(|error| {
                let what = format!("invalid baseline {}", path.display());
                Failure::new(Code::Usage, what).why(error)
            })?,
            None => Baseline::default(),
        };
        Ok(Self { allow, baseline, least: args.min_confidence.into() })
    }

    /// Returns the findings of a report that are confident enough, each with its acceptance.
    pub(crate) fn judge<'a>(&self, report: &'a FindingReport) -> Vec<Judged<'a>> {
        let enough = |found: &Found<'_>| found.finding.confidence >= self.least;
        let judged = |found: Found<'a>| Judged { found, accepted: self.acceptance(&found) };
        report.findings().filter(enough).map(judged).collect()
    }

    /// Returns whether a part that was not read is accepted.
    pub(crate) fn accepts_gap(&self, item: &ItemFindings, gap: &Gap) -> bool {
        self.allow.find(&allow_path(item, gap.member.as_deref()), UNREAD).is_some()
    }

    fn acceptance(&self, found: &Found<'_>) -> Option<Acceptance> {
        if found.finding.allowed {
            return Some(Acceptance::Comment);
        }
        // Before the allow-list, so that a finding that is in both stays in a rewritten baseline.
        if self.baseline.contains(&found.finding.id) {
            return Some(Acceptance::Baseline);
        }
        let path = allow_path(found.item, found.finding.member.as_deref());
        let entry = self.allow.find(&path, &found.finding.rule)?;
        Some(Acceptance::AllowList(entry.reason.clone()))
    }
}

/// Returns the path that an allow-list names: that of the item, with the member of an archive.
fn allow_path(item: &ItemFindings, member: Option<&str>) -> Vec<u8> {
    // Objects of git have a hash as their key; patterns are written for paths.
    let name = if item.path.is_empty() { &item.key } else { &item.path };
    match member {
        Some(member) => [name, &b"!/"[..], member.as_bytes()].concat(),
        None => name.to_vec(),
    }
}

/// Returns where the allow-list of a source would be, if it is a directory.
fn default_file(source: &OsStr) -> Option<PathBuf> {
    let bytes = source.as_bytes();
    let path = ["git:", "tree:"].iter().find_map(|scheme| bytes.strip_prefix(scheme.as_bytes()));
    let directory = Path::new(OsStr::from_bytes(path.unwrap_or(bytes)));
    // The source of a stored run is the directory of its objects; the file is beside that.
    let directory = match directory.file_name() {
        Some(name) if name == ".git" => directory.parent()?,
        _ => directory,
    };
    directory.is_dir().then(|| directory.join(ALLOW_FILE))
}

fn text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::new(Code::Usage, format!("cannot read {}", path.display())).why(error)
    })
}

fn bad_list(path: &Path, error: &RuleError) -> Failure {
    let place = match error {
        RuleError::Syntax { line, column, .. } => format!(":{line}:{column}"),
        _ => String::new(),
    };
    let why = match error {
        RuleError::Syntax { reason, .. } => reason.clone(),
        error => error.to_string(),
    };
    Failure::new(Code::Usage, format!("invalid allow-list {}{place}", path.display()))
        .why(why)
        .next("an entry is [[allow]] with path, rule, or both, and a reason; see docs/scan.md")
}

/// Returns the text of a baseline of findings, with rule and place of each as a comment.
pub(crate) fn baseline_text<'a>(judged: impl Iterator<Item = &'a Judged<'a>>) -> String {
    let mut places = BTreeMap::new();
    for Judged { found, .. } in judged {
        let Found { item, finding } = found;
        let place = || {
            let place = escaped(&item.place(finding.member.as_deref()));
            format!("{} {place}:{}", finding.rule, finding.line)
        };
        // The same secret at several places has one id, and the first place is enough for a
        // reader.
        places.entry(found.finding.id).or_insert_with(place);
    }
    // The header; the lines are those of a baseline with a comment each.
    let mut text = Baseline::default().to_text();
    for (id, place) in places {
        text.push_str(&format!("{id} # {place}\n"));
    }
    text
}
