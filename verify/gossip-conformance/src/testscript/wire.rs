//! The lines that a troupe and its actors exchange: fields with tabs in between.
//!
//! A tab, a line's end or a backslash within a field is written as two characters, so that every
//! message is one line.

use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_coordination::{GrantToken, Lease};

use super::WorldSettings;
use super::arguments::{Range, number};
use super::stage::Performed;
use super::world::{Held, Said};

/// What an actor is told.
pub(super) enum Request {
    Begin(WorldSettings),
    /// A command, after all that was said before it.
    Perform(Situation, String),
}

impl Request {
    pub(super) fn to_line(&self) -> String {
        match self {
            Self::Begin(settings) => {
                let size = |size: Option<usize>| option(size.map(|size| size as u64));
                join(&[
                    "begin",
                    &option(settings.claim_cooldown),
                    &size(settings.max_shards_per_tenant),
                    &size(settings.max_total_shards),
                    &size(settings.slab_bytes),
                ])
            }
            Self::Perform(situation, line) => join(&["perform", &situation.0, line]),
        }
    }

    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let fields = split(line);
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        match fields[..] {
            ["begin", cooldown, tenant, total, slab] => {
                let size = |text| -> Result<Option<usize>, String> {
                    let size = given(text)?.map(usize::try_from).transpose();
                    size.map_err(|_| format!("`{text}` is no size"))
                };
                Ok(Self::Begin(WorldSettings {
                    claim_cooldown: given(cooldown)?,
                    max_shards_per_tenant: size(tenant)?,
                    max_total_shards: size(total)?,
                    slab_bytes: size(slab)?,
                }))
            }
            ["perform", situation, line] => {
                Ok(Self::Perform(Situation(situation.to_owned()), line.to_owned()))
            }
            _ => Err(format!("an actor is not told {} fields", fields.len())),
        }
    }
}

/// What an actor says.
pub(super) enum Reply {
    Begun,
    Skipped,
    /// What came of a command, and what has been said now.
    Performed(Situation, Performed),
}

impl Reply {
    pub(super) fn to_line(&self) -> String {
        match self {
            Self::Begun => "begun".to_owned(),
            Self::Skipped => "skipped".to_owned(),
            Self::Performed(situation, performed) => {
                let Performed { label, text, events } = performed;
                let mut fields = vec!["performed", &*situation.0, label, text];
                fields.extend(events.iter().map(String::as_str));
                join(&fields)
            }
        }
    }

    /// A reply that is read as the error `message`.
    pub(super) fn error_line(message: &str) -> String {
        join(&["error", message])
    }

    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let fields = split(line);
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        match fields[..] {
            ["begun"] => Ok(Self::Begun),
            ["skipped"] => Ok(Self::Skipped),
            ["performed", situation, label, text, ref events @ ..] => {
                let events = events.iter().map(ToString::to_string).collect();
                let performed =
                    Performed { label: label.to_owned(), text: text.to_owned(), events };
                Ok(Self::Performed(Situation(situation.to_owned()), performed))
            }
            ["error", message] => Err(message.to_owned()),
            _ => Err(format!("an actor does not say {} fields", fields.len())),
        }
    }
}

/// What a script has said so far, in words.
#[derive(Clone, Debug, Default)]
pub(super) struct Situation(String);

impl Situation {
    pub(super) fn of(said: &Said) -> Self {
        let mut words = vec![format!("clock {} op {}", said.clock.as_raw(), said.last_op)];
        let named = |(shard, name): (&ShardId, &String)| format!("name {} {name}", shard.as_raw());
        words.extend(said.names.iter().map(named));
        words.extend(said.leases.iter().map(|(name, held)| {
            let Held { lease, range } = held;
            let numbers = [
                lease.run().as_raw(),
                lease.shard().as_raw(),
                lease.owner().as_raw(),
                lease.fence().as_raw(),
                lease.deadline().as_raw(),
                lease.token().as_raw(),
            ];
            let numbers = numbers.map(|number| number.to_string()).join(" ");
            let tenant = lease.tenant();
            let bytes = [tenant.as_bytes().as_slice(), &range.start, &range.end];
            format!("lease {name} {numbers} {}", bytes.map(hex).join(" "))
        }));
        Self(words.join(" "))
    }

    pub(super) fn read(&self) -> Result<Said, String> {
        let (mut said, mut words) = (Said::default(), Words(self.0.split_whitespace()));
        while let Some(word) = words.0.next() {
            match word {
                "clock" => said.clock = LogicalTime::from_raw(words.number()?),
                "op" => said.last_op = words.number()?,
                "name" => {
                    let shard = ShardId::from_raw(words.number()?);
                    said.names.insert(shard, words.word()?.to_owned());
                }
                "lease" => {
                    let name = words.word()?.to_owned();
                    said.leases.insert(name, words.held()?);
                }
                other => return Err(format!("nobody says `{other}`")),
            }
        }
        Ok(said)
    }
}

/// The words of a situation that are not read yet.
struct Words<'w>(std::str::SplitWhitespace<'w>);

impl<'w> Words<'w> {
    fn word(&mut self) -> Result<&'w str, String> {
        self.0.next().ok_or_else(|| "a situation ends early".to_owned())
    }

    fn number(&mut self) -> Result<u64, String> {
        number(self.word()?)
    }

    fn held(&mut self) -> Result<Held, String> {
        let (run, shard) = (self.number()?, self.number()?);
        let (owner, fence) = (self.number()?, self.number()?);
        let (deadline, token) = (self.number()?, self.number()?);
        let tenant = unhex(self.word()?)?;
        let tenant = tenant.try_into().map_err(|_| "a tenant has 32 bytes".to_owned())?;
        let (start, end) = (unhex(self.word()?)?, unhex(self.word()?)?);
        let lease = Lease::new(
            TenantId::from_bytes(tenant),
            ShardKey::new(RunId::from_raw(run), ShardId::from_raw(shard)),
            WorkerId::from_raw(owner),
            FenceEpoch::from_raw(fence),
            LogicalTime::from_raw(deadline),
            GrantToken::from_raw(token),
        );
        Ok(Held { lease, range: Range::between(&start, &end) })
    }
}

/// A number, or that there is none.
fn option(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn given(text: &str) -> Result<Option<u64>, String> {
    if text == "-" { Ok(None) } else { number(text).map(Some) }
}

/// Bytes as a word that is never empty.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("x{digits}")
}

fn unhex(word: &str) -> Result<Vec<u8>, String> {
    let broken = || "bytes are written as `x` and pairs of digits".to_owned();
    let digits = word.strip_prefix('x').filter(|digits| digits.is_ascii()).ok_or_else(broken)?;
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).map_err(|_| broken())?;
        u8::from_str_radix(pair, 16).map_err(|_| broken())
    });
    pairs.collect()
}

fn join(fields: &[&str]) -> String {
    let escaped = fields
        .iter()
        .map(|field| field.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n"));
    escaped.collect::<Vec<_>>().join("\t")
}

/// The fields of a line, as they were joined.
fn split(line: &str) -> Vec<String> {
    let field = |text: &str| {
        let (mut field, mut rest) = (String::new(), text.chars());
        while let Some(c) = rest.next() {
            field.push(match c {
                '\\' => match rest.next() {
                    Some('t') => '\t',
                    Some('n') => '\n',
                    Some(other) => other,
                    None => '\\',
                },
                other => other,
            });
        }
        field
    };
    line.split('\t').map(field).collect()
}
