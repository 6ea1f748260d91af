//! Whole secrets for the terminal of a user who asked for them, read again from the source.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};

use gossip::connector::Connector;
use gossip::identity::TenantId;
use gossip::secrets::{FindingReport, Found, ItemScanner, SecretScan};
use gossip::sources::Source;

use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::progress::escaped;

/// Whole secrets by place.
#[derive(Default)]
pub(crate) struct Secrets(BTreeMap<Place, Vec<u8>>);

/// Key, archive member, offset and rule.
type Place = (Box<[u8]>, Option<Box<str>>, u64, Box<str>);

impl Secrets {
    pub(crate) fn find(&self, found: &Found<'_>) -> Option<&[u8]> {
        let finding = found.finding;
        let place =
            (found.item.key.clone(), finding.member.clone(), finding.offset, finding.rule.clone());
        self.0.get(&place).map(Vec::as_slice)
    }
}

/// Refuses to show secrets where they would be stored.
pub(crate) fn check_terminal(show_secrets: bool) -> Result<(), Failure> {
    if show_secrets && !io::stdout().is_terminal() {
        return Err(Failure::new(Code::Usage, "--show-secrets needs a terminal")
            .why("standard output is a file or a pipe, which would keep the secrets")
            .next("run the command without a redirection, or leave the option out"));
    }
    Ok(())
}

/// Reads the secrets of a report again. One that is gone or has changed stays redacted.
pub(crate) fn read(
    report: &FindingReport,
    secrets: &SecretScan,
    (source, connector): (&Source, &dyn Connector),
    tenant: TenantId,
    console: &Console,
) -> Secrets {
    let (mut read, mut scanner) = (Secrets::default(), ItemScanner::new(secrets, tenant, source));
    // Items with gaps alone have no secret to show, and reading them again may take long.
    for item in report.items().filter(|item| !item.findings.is_empty()) {
        let result = scanner.secrets_of(connector, item, |finding, secret| {
            let place =
                (item.key.clone(), finding.member.clone(), finding.offset, finding.rule.clone());
            read.0.insert(place, secret.to_vec());
        });
        if let Err(error) = result {
            let place = escaped(&item.place(None));
            console.problem(&format!("cannot read {place} again: {error}"));
        }
    }
    read
}
