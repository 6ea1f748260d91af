//! Parses the named arguments of a command: numbers, keys, ranges and manifests.

use gossip_contracts::coordination::{CursorUpdate, InitialShardInput, ShardSpecRef};
use gossip_contracts::identity::ShardId;

/// The arguments of one command. Each is taken once, and [`Arguments::finish`] rejects the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) command: String,
    /// Names are unique.
    pairs: Vec<(String, String)>,
}

impl Arguments {
    /// Parses `command name=value name=value`.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let command = words.next().ok_or("an empty command")?.to_owned();
        let mut pairs: Vec<(String, String)> = Vec::new();
        for word in words {
            let (name, value) =
                word.split_once('=').ok_or_else(|| format!("`{word}` has no value"))?;
            if pairs.iter().any(|(known, _)| known == name) {
                return Err(format!("`{name}` is given twice"));
            }
            pairs.push((name.to_owned(), value.to_owned()));
        }
        Ok(Self { command, pairs })
    }

    /// Takes an optional argument.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let position = self.pairs.iter().position(|(known, _)| known == name)?;
        Some(self.pairs.remove(position).1)
    }

    /// Takes a required argument.
    pub(super) fn need(&mut self, name: &str) -> Result<String, String> {
        self.take(name).ok_or_else(|| format!("`{}` needs `{name}=`", self.command))
    }

    /// Takes an optional number.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        self.take(name).map(|value| number(&value)).transpose()
    }

    /// Takes a required number.
    pub(super) fn need_number(&mut self, name: &str) -> Result<u64, String> {
        number(&self.need(name)?)
    }

    /// Fails if an argument was given and not taken.
    pub(super) fn finish(self) -> Result<(), String> {
        match self.pairs.first() {
            Some((name, _)) => Err(format!("`{}` has no argument `{name}=`", self.command)),
            None => Ok(()),
        }
    }

    /// Returns the number of arguments in which two commands of one name differ.
    pub(super) fn differences(&self, other: &Self) -> usize {
        let lacks = |one: &Self, other: &Self| {
            let changed = |pair: &&(String, String)| !other.pairs.contains(*pair);
            one.pairs.iter().filter(changed).map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let mut names = lacks(self, other);
        names.extend(lacks(other, self));
        names.sort_unstable();
        names.dedup();
        names.len()
    }
}

/// Parses a decimal number.
pub(super) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

/// Parses a count.
pub(super) fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

/// Parses the bytes of a key or token: `c*5` is `ccccc`.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    match text.split_once('*') {
        Some((part, times)) => Ok(part.repeat(count(times)?).into_bytes()),
        None => Ok(text.as_bytes().to_vec()),
    }
}

/// An owned cursor.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    key: Option<Vec<u8>>,
    /// Empty for none; never present without a key.
    token: Vec<u8>,
}

impl Position {
    /// Takes `key=` and `token=`.
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, String> {
        let key = arguments.take("key").map(|key| bytes(&key)).transpose()?;
        let token = arguments.take("token").map(|token| bytes(&token)).transpose()?;
        if token.is_some() && key.is_none() {
            return Err("a token needs a key".to_owned());
        }
        Ok(Self { key, token: token.unwrap_or_default() })
    }

    /// Parses `key` or `key/token`.
    fn parse(text: &str) -> Result<Self, String> {
        let (key, token) = text.split_once('/').unwrap_or((text, ""));
        Ok(Self { key: Some(bytes(key)?), token: bytes(token)? })
    }

    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// Returns the cursor. The coordinator checks its size.
    pub(super) fn cursor(&self) -> CursorUpdate<'_> {
        match &self.key {
            Some(key) => CursorUpdate::new(key, &self.token),
            None => CursorUpdate::initial(),
        }
    }
}

/// A range with optional cursor and metadata: `a..m`, `a..m@c`, `a..m@c/token`, `a..m#metadata`.
#[derive(Clone, Debug, Default)]
pub(super) struct Range {
    pub(super) start: Vec<u8>,
    pub(super) end: Vec<u8>,
    metadata: Vec<u8>,
    pub(super) position: Position,
}

impl Range {
    /// Creates a range without cursor and metadata.
    pub(super) fn between(start: &[u8], end: &[u8]) -> Self {
        Self { start: start.to_vec(), end: end.to_vec(), ..Self::default() }
    }

    /// Parses a range without validating it: scripts test the validation of the coordinator.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (text, metadata) = text.split_once('#').unwrap_or((text, ""));
        let (text, position) = match text.split_once('@') {
            Some((text, position)) => (text, Position::parse(position)?),
            None => (text, Position::default()),
        };
        let (start, end) =
            text.split_once("..").ok_or_else(|| format!("`{text}` is not a range"))?;
        let (start, end) = (bytes(start)?, bytes(end)?);
        Ok(Self { start, end, metadata: bytes(metadata)?, position })
    }

    /// Parses ranges separated by commas.
    pub(super) fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(Self::parse).collect()
    }

    pub(super) fn spec(&self) -> ShardSpecRef<'_> {
        ShardSpecRef::new(&self.start, &self.end, &self.metadata)
    }

    /// Returns whether the range contains `key`.
    fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && *key < *self.end
    }

    /// Splits the range at `points`; the part that contains the cursor keeps it.
    pub(super) fn cut(&self, points: &str, position: &Position) -> Result<Vec<Self>, String> {
        let points: Vec<Vec<u8>> = points.split(',').map(bytes).collect::<Result<_, _>>()?;
        let starts = std::iter::once(&self.start).chain(&points);
        let ends = points.iter().chain(std::iter::once(&self.end));
        let mut parts: Vec<Self> =
            starts.zip(ends).map(|(start, end)| Self::between(start, end)).collect();
        for part in &mut parts {
            if position.key().is_some_and(|key| part.contains(key)) {
                part.position = position.clone();
            }
        }
        Ok(parts)
    }
}

/// The root shards of a run: `none`, or rows like `0:a..m`, `1:m..z@c`, `many*10001`.
pub(super) struct Manifest(Vec<(ShardId, Range)>);

impl Manifest {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let mut rows = Vec::new();
        for row in text.split(',') {
            match row.strip_prefix("many*") {
                Some(times) => rows.extend(Self::many(count(times)?)),
                None => rows.push(Self::row(row)?),
            }
        }
        Ok(Self(rows))
    }

    fn row(text: &str) -> Result<(ShardId, Range), String> {
        let (id, range) =
            text.split_once(':').ok_or_else(|| format!("`{text}` has no shard id"))?;
        Ok((ShardId::from_raw(number(id)?), Range::parse(range)?))
    }

    /// Returns small disjoint ranges, for tests of count limits.
    fn many(rows: usize) -> impl Iterator<Item = (ShardId, Range)> {
        (0..rows).map(|id| {
            let (start, end) = (format!("k{id:06}"), format!("k{id:06}~"));
            (ShardId::from_raw(id as u64), Range::between(start.as_bytes(), end.as_bytes()))
        })
    }

    /// Returns the rows as input of the coordinator.
    pub(super) fn inputs(&self) -> Vec<InitialShardInput<'_>> {
        self.0
            .iter()
            .map(|(shard_id, range)| InitialShardInput {
                shard_id: *shard_id,
                spec: range.spec(),
                cursor: range.position.cursor(),
            })
            .collect()
    }
}
