//! Samples from templates, by code that shares nothing with the rules.
//!
//! A template is text with parts in angle brackets: `<an:36>` is 36 random letters and digits,
//! `<an:36+>` the fewest of a body without a fixed length, `<crc62>` a checksum of the text before.

/// A generator of pseudo-random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize
    }

    pub(crate) fn text(&mut self, alphabet: &str, len: usize) -> String {
        let alphabet = alphabet.as_bytes();
        (0..len).map(|_| char::from(alphabet[self.next() % alphabet.len()])).collect()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Alphabets by their name in templates, each with a character that is not in it.
const ALPHABETS: [(&str, &str, char); 14] = [
    ("an", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", '*'),
    ("b64u", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_", '*'),
    ("b64", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/", '*'),
    ("hex", "0123456789abcdef", 'g'),
    ("d", "0123456789", 'x'),
    ("d19", "123456789", 'x'),
    ("lo", "0123456789abcdefghijklmnopqrstuvwxyz", 'Q'),
    ("up", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", 'q'),
    ("b32", "abcdefghijklmnopqrstuvwxyz234567", '1'),
    ("B32", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", '1'),
    ("let", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", '1'),
    // The last character before the padding of 64 and of 32 bytes.
    ("q4", "AQgw", '*'),
    ("q2", "AEIMQUYcgkosw048", '*'),
    ("pw", "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz23456789", '*'),
];

/// A sample and what a test needs to damage it.
pub(crate) struct Sample {
    pub(crate) text: String,
    /// The last byte of the last random part.
    last: Option<usize>,
    /// The first byte of the first random part, and a character that it may not have.
    first: Option<(usize, char)>,
    /// Every part has a fixed length.
    pub(crate) is_fixed: bool,
}

impl Sample {
    pub(crate) fn new(template: &str, random: &mut Random) -> Self {
        let mut sample = Self { text: String::new(), last: None, first: None, is_fixed: true };
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('<') {
            sample.text.push_str(before);
            let (part, after) = after.split_once('>').unwrap();
            rest = after;
            sample.push(part, random);
        }
        sample.text.push_str(rest);
        sample
    }

    fn push(&mut self, part: &str, random: &mut Random) {
        let Some((name, len)) = part.split_once(':') else {
            // Documents of any length.
            self.is_fixed &= !matches!(part, "jwt" | "pypi" | "json" | "json-k");
            let computed = computed(part, &self.text, random);
            return self.text.push_str(&computed);
        };
        let (_, alphabet, wrong) = ALPHABETS.iter().find(|(known, ..)| *known == name).unwrap();
        self.is_fixed &= !len.ends_with('+');
        self.first = self.first.or(Some((self.text.len(), *wrong)));
        let len = len.trim_end_matches('+').parse().unwrap();
        self.text.push_str(&random.text(alphabet, len));
        self.last = Some(self.text.len() - 1);
    }

    /// Returns the sample with one character less.
    pub(crate) fn short(&self) -> Option<String> {
        let mut text = self.text.clone();
        text.remove(self.last?);
        Some(text)
    }

    /// Returns the sample with a character of another alphabet.
    pub(crate) fn wrong(&self) -> Option<String> {
        let (at, wrong) = self.first?;
        let mut text = self.text.clone();
        text.replace_range(at..=at, &wrong.to_string());
        Some(text)
    }
}

/// Parts that are computed.
fn computed(name: &str, before: &str, random: &mut Random) -> String {
    let hex = |random: &mut Random, len| random.text("0123456789abcdef", len);
    match name {
        "crc62" => in_digits(crc32(&before.as_bytes()[before.len() - 30..]), 62, 6),
        "crc36" => in_digits(crc32(before.as_bytes()), 36, 7),
        "crchex" => format!("{:08X}", crc32(before.as_bytes())),
        "uuid" => {
            let lens = [8, 4, 4, 4, 12];
            lens.map(|len| hex(random, len)).join("-")
        }
        "reftkn" => {
            let text = format!("reftkn:01:{}", random.text("abcdefghijk0123456789", 38));
            base64(text.as_bytes())[..64].to_owned()
        }
        "pypi" => {
            let host = [&[2, 1, 8][..], random.text("abcdefgh", 8).as_bytes(), &[2]].concat();
            base64_url(&[host, random.bytes(80)].concat())
        }
        "snowflake" => base64_url(format!("8{}", random.text("0123456789", 17)).as_bytes()),
        "json" => base64(format!("{{\"n\":\"{}\"}}", hex(random, 240)).as_bytes()),
        "json-k" => base64(format!("{{\"k\":\"{}\",\"id\":1}}", hex(random, 92)).as_bytes()),
        "json-iat" => base64(format!("{{\"iat\":17,\"url\":\"{}\"}}", hex(random, 61)).as_bytes()),
        "jwt" => {
            let header = base64_url(b"{\"alg\":\"HS256\",\"typ\":\"JWT\"}");
            let payload = base64_url(format!("{{\"sub\":\"{}\"}}", hex(random, 12)).as_bytes());
            format!("{header}.{payload}.{}", base64_url(&random.bytes(32)))
        }
        "basic" => base64(format!("deploy:{}", hex(random, 14)).as_bytes()),
        "key32" => {
            base64(&random.bytes(32)).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
        }
        "der" => base64(&[vec![0x30, 0x82, 1, 0], random.bytes(256)].concat()),
        "openssh" => base64(&[b"openssh-key-v1\0".to_vec(), random.bytes(200)].concat()),
        "age" => age(random),
        "nkey" => nkey(random),
        other => panic!("unknown part {other}"),
    }
}

fn base64(bytes: &[u8]) -> String {
    let mut text = base64_url(bytes).replace('-', "+").replace('_', "/");
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

fn base64_url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    groups(bytes, 6).map(|value| char::from(ALPHABET[value])).collect()
}

/// The bits of bytes in groups.
fn groups(bytes: &[u8], width: usize) -> impl Iterator<Item = usize> + '_ {
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| (byte >> (7 - at % 8)) & 1);
    (0..(bytes.len() * 8).div_ceil(width)).map(move |group| {
        (0..width).fold(0, |it, low| (it << 1) | usize::from(bit(group * width + low)))
    })
}

fn in_digits(mut value: u32, radix: u32, len: usize) -> String {
    let digits: &[u8] = match radix {
        36 => b"0123456789abcdefghijklmnopqrstuvwxyz",
        _ => b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    };
    let mut text = vec![b'0'; len];
    for digit in text.iter_mut().rev() {
        *digit = digits[(value % radix) as usize];
        value /= radix;
    }
    String::from_utf8(text).unwrap()
}

/// CRC-32 of IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |it, _| step(it)))
}

/// An identity of age: bech32 of 32 bytes (BIP 173).
fn age(random: &mut Random) -> String {
    const ALPHABET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let data: Vec<u8> = groups(&random.bytes(32), 5).map(|it| it as u8).collect();
    let prefix = b"age-secret-key-";
    let high = prefix.iter().map(|byte| byte >> 5);
    let low = prefix.iter().map(|byte| byte & 31);
    let all = high.chain([0]).chain(low).chain(data.clone()).chain([0; 6]);
    let sum = 1 ^ all.fold(1_u32, |sum, value| {
        let shifted = ((sum & 0x01ff_ffff) << 5) ^ u32::from(value);
        let used = (0..5).filter(|bit| (sum >> (25 + bit)) & 1 == 1);
        used.fold(shifted, |it, bit| it ^ GENERATOR[bit])
    });
    let checksum = (0..6).map(|it| ((sum >> (5 * (5 - it))) & 31) as u8);
    let body = data.iter().copied().chain(checksum).map(|it| ALPHABET[usize::from(it)]);
    String::from_utf8(body.collect()).unwrap().to_uppercase()
}

/// A seed of NATS: kind, 32 bytes and CRC-16/XMODEM in base32.
fn nkey(random: &mut Random) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    // `S`, then `U` for a user: five bits each, the second across two bytes.
    let mut bytes = vec![(18 << 3) | (20 >> 2), (20 & 3) << 6];
    bytes.extend(random.bytes(32));
    let crc = bytes.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |it, _| {
            if it & 0x8000 == 0 { it << 1 } else { (it << 1) ^ 0x1021 }
        })
    });
    bytes.extend(crc.to_le_bytes());
    groups(&bytes, 5).map(|it| char::from(ALPHABET[it])).collect()
}
