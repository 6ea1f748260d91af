//! Requests and replies between a [`MultiHandle`](super::MultiHandle) and its handles.
//!
//! A message is one line of tab-separated fields. Tabs, line feeds and backslashes within a field
//! are escaped.

use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_coordination::{GrantToken, Lease};

use super::WorldSettings;
use super::arguments::{Range, number};
use super::executor::CommandOutput;
use super::world::{Held, ScriptState};

/// A request to a handle.
pub(super) enum Request {
    Begin(WorldSettings),
    /// Executes a command in the given script state.
    Execute(EncodedState, String),
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
            Self::Execute(state, line) => join(&["execute", &state.0, line]),
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
            ["execute", state, line] => {
                Ok(Self::Execute(EncodedState(state.to_owned()), line.to_owned()))
            }
            _ => Err(format!("unknown request with {} fields", fields.len())),
        }
    }
}

/// A reply of a handle.
pub(super) enum Reply {
    Begun,
    Skipped,
    /// The output of a command and the script state after it.
    Executed(EncodedState, CommandOutput),
}

impl Reply {
    pub(super) fn to_line(&self) -> String {
        match self {
            Self::Begun => "begun".to_owned(),
            Self::Skipped => "skipped".to_owned(),
            Self::Executed(state, output) => {
                let CommandOutput { label, text, events } = output;
                let mut fields = vec!["executed", &*state.0, label, text];
                fields.extend(events.iter().map(String::as_str));
                join(&fields)
            }
        }
    }

    /// Returns the reply line that parses as the error `message`.
    pub(super) fn error_line(message: &str) -> String {
        join(&["error", message])
    }

    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let fields = split(line);
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        match fields[..] {
            ["begun"] => Ok(Self::Begun),
            ["skipped"] => Ok(Self::Skipped),
            ["executed", state, label, text, ref events @ ..] => {
                let events = events.iter().map(ToString::to_string).collect();
                let output =
                    CommandOutput { label: label.to_owned(), text: text.to_owned(), events };
                Ok(Self::Executed(EncodedState(state.to_owned()), output))
            }
            ["error", message] => Err(message.to_owned()),
            _ => Err(format!("unknown reply with {} fields", fields.len())),
        }
    }
}

/// A [`ScriptState`] encoded as words separated by spaces.
#[derive(Clone, Debug, Default)]
pub(super) struct EncodedState(String);

impl EncodedState {
    pub(super) fn of(state: &ScriptState) -> Self {
        let mut words = vec![format!("clock {} op {}", state.clock.as_raw(), state.last_op)];
        let named = |(shard, name): (&ShardId, &String)| format!("name {} {name}", shard.as_raw());
        words.extend(state.names.iter().map(named));
        words.extend(state.leases.iter().map(|(name, held)| {
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

    pub(super) fn read(&self) -> Result<ScriptState, String> {
        let (mut state, mut words) = (ScriptState::default(), Words(self.0.split_whitespace()));
        while let Some(word) = words.0.next() {
            match word {
                "clock" => state.clock = LogicalTime::from_raw(words.number()?),
                "op" => state.last_op = words.number()?,
                "name" => {
                    let shard = ShardId::from_raw(words.number()?);
                    state.names.insert(shard, words.word()?.to_owned());
                }
                "lease" => {
                    let name = words.word()?.to_owned();
                    state.leases.insert(name, words.held()?);
                }
                other => return Err(format!("unknown word `{other}` in a script state")),
            }
        }
        Ok(state)
    }
}

/// The words of an encoded state that are not parsed yet.
struct Words<'w>(std::str::SplitWhitespace<'w>);

impl<'w> Words<'w> {
    fn word(&mut self) -> Result<&'w str, String> {
        self.0.next().ok_or_else(|| "the script state ends early".to_owned())
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

/// Formats an optional number.
fn option(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn given(text: &str) -> Result<Option<u64>, String> {
    if text == "-" { Ok(None) } else { number(text).map(Some) }
}

/// Encodes bytes as a word that is never empty.
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

/// Splits a line into the fields that [`join`] wrote.
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
