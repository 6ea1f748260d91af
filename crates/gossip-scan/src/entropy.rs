//! Shannon entropy of short byte strings in integers, so that every machine gets the same value.

/// Returns the entropy in thousandths of a bit per byte; zero for an empty string.
pub(crate) fn millibits(bytes: &[u8]) -> u32 {
    let Ok(len) = u32::try_from(bytes.len()) else { return 8_000 };
    if len == 0 {
        return 0;
    }
    let mut counts = [0_u32; 256];
    for &byte in bytes {
        counts[usize::from(byte)] += 1;
    }
    // H = log2(len) - sum(count * log2(count)) / len
    let weighted: u64 = counts
        .iter()
        // A count of one adds nothing: its logarithm is zero.
        .filter(|count| **count > 1)
        .map(|&count| u64::from(count) * u64::from(log2_millibits(count)))
        .sum();
    let average = u32::try_from(weighted / u64::from(len)).unwrap_or(u32::MAX);
    log2_millibits(len).saturating_sub(average)
}

/// Returns 1000 * log2(value), rounded down, by repeated squaring. The value is not zero.
fn log2_millibits(value: u32) -> u32 {
    let whole = value.ilog2();
    // The mantissa in [1, 2) with 31 fractional bits.
    let mut mantissa = u64::from(value) << (31 - whole);
    let mut fraction = 0_u32;
    for _ in 0..16 {
        mantissa = (mantissa * mantissa) >> 31;
        fraction <<= 1;
        if mantissa >= 1 << 32 {
            mantissa >>= 1;
            fraction |= 1;
        }
    }
    whole * 1000 + ((fraction * 1000) >> 16)
}

#[cfg(test)]
#[path = "entropy_tests.rs"]
mod entropy_tests;
