use super::millibits;

#[test]
fn uniform_bytes_have_the_logarithm_of_their_count() {
    assert_eq!(millibits(b""), 0);
    assert_eq!(millibits(b"aaaa"), 0);
    assert_eq!(millibits(b"abcd"), 2_000);
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(millibits(&all), 8_000);
}

#[test]
fn unequal_counts_agree_with_floating_point_within_two_thousandths() {
    for text in [&b"aab"[..], b"hello world", b"0123456789abcdef0011", b"correct horse battery"] {
        let len = text.len() as f64;
        let exact: f64 = (0..=255_u8)
            .map(|byte| text.iter().filter(|it| **it == byte).count() as f64 / len)
            .filter(|share| *share > 0.0)
            .map(|share| -share * share.log2())
            .sum();
        assert!((f64::from(millibits(text)) / 1000.0 - exact).abs() < 0.002);
    }
}
