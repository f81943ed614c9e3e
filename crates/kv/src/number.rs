//! Numbers stored as text: how they are parsed, added and formatted.
//!
//! Integers follow Redis's strict rule: the canonical form of an `i64`, so no plus, space or leading zero. Sums of decimals
//! are exact wherever the digits allow, so that `0.1 + 0.2` is `0.3`; the result has at most 17 digits after the point, as
//! in Redis. Beyond that, arithmetic is `f64`, which rounds the same on every machine, so replicas agree.

/// Digits after the point in a sum.
const FRACTION_DIGITS_MAX: u32 = 17;

/// Texts of this many bytes or more are not decimal numbers.
const FLOAT_TEXT_BYTES_MAX: usize = 5 * 1024;

/// Length of the longest `i64` as text, in bytes.
pub const INTEGER_TEXT_BYTES_MAX: usize = 20;

/// Parses an integer in its canonical form; `None` for any other text.
///
/// ```
/// use kv::number::parse_integer;
/// assert_eq!(parse_integer(b"-42"), Some(-42));
/// assert_eq!(parse_integer(b"+42"), None);
/// assert_eq!(parse_integer(b"042"), None);
/// ```
#[inline]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < INTEGER_TEXT_BYTES_MAX => {}
        _ => return None,
    }
    // At most 19 digits, which fit a u64.
    let mut magnitude: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Writes `value` into `buffer` and returns the part that was used.
#[inline]
pub fn format_integer(value: i64, buffer: &mut [u8; INTEGER_TEXT_BYTES_MAX]) -> &[u8] {
    let mut rest = value.unsigned_abs();
    let mut start = buffer.len();
    loop {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        start -= 1;
        buffer[start] = b'-';
    }
    &buffer[start..]
}

/// Parses a number by the rules of `INCRBYFLOAT`.
///
/// A sign, digits with or without a point, an exponent; `inf` and `infinity` in any case. No spaces, no `nan`, and
/// nothing that is too large for a double or so small that it would become zero.
///
/// ```
/// use kv::number::parse_float;
/// assert_eq!(parse_float(b"3.0e3"), Some(3000.0));
/// assert_eq!(parse_float(b"-inf"), Some(f64::NEG_INFINITY));
/// assert_eq!(parse_float(b" 1"), None);
/// assert_eq!(parse_float(b"nan"), None);
/// ```
pub fn parse_float(text: &[u8]) -> Option<f64> {
    if text.len() >= FLOAT_TEXT_BYTES_MAX {
        return None;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let written_as_infinity = text.iter().any(|byte| matches!(byte, b'i' | b'I'));
    if value.is_nan() || (value.is_infinite() && !written_as_infinity) {
        return None;
    }
    let significand = text.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    if value == 0.0 && significand.iter().any(|byte| matches!(byte, b'1'..=b'9')) {
        return None;
    }
    Some(value)
}

/// Parses a hexadecimal number, such as `-0x1.8p3`: a sign, `0x`, digits with or without a point, an exponent of two. Like
/// [`parse_float`], it refuses what is too large for a double, or would become zero.
///
/// Only for what a client sends: in records and values there are decimal numbers only.
///
/// ```
/// use kv::number::parse_hexadecimal;
/// assert_eq!(parse_hexadecimal(b"-0x1.8p3"), Some(-12.0));
/// assert_eq!(parse_hexadecimal(b"12"), None);
/// ```
#[cold]
pub fn parse_hexadecimal(text: &[u8]) -> Option<f64> {
    /// Beyond this, every number is too large or too small.
    const LARGEST_EXPONENT: i64 = 100_000;
    /// From here on, one digit more has no room in 64 bits.
    const FULL: u64 = 1 << 60;
    if text.len() >= FLOAT_TEXT_BYTES_MAX {
        return None;
    }
    fn signed(text: &[u8]) -> (bool, &[u8]) {
        match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        }
    }
    let (is_negative, text) = signed(text);
    let [b'0', b'x' | b'X', rest @ ..] = text else { return None };
    let mut parts = rest.splitn(2, |byte| matches!(byte, b'p' | b'P'));
    let digits = parts.next().unwrap_or_default();
    let mut scale = match parts.next().map(signed) {
        None => 0,
        Some((_, [])) => return None,
        Some((is_below, exponent)) => {
            let exponent = exponent.iter().try_fold(0_i64, |sum, byte| {
                let digit = char::from(*byte).to_digit(10)?;
                Some((10 * sum + i64::from(digit)).min(LARGEST_EXPONENT))
            })?;
            if is_below { -exponent } else { exponent }
        }
    };
    let (mut significand, mut has_digits, mut is_behind_point) = (0_u64, false, false);
    for byte in digits {
        if *byte == b'.' && !is_behind_point {
            is_behind_point = true;
            continue;
        }
        let digit = u64::from(char::from(*byte).to_digit(16)?);
        has_digits = true;
        let has_room = significand < FULL;
        if has_room {
            significand = significand << 4 | digit;
        } else {
            // For rounding it is enough that there is more.
            significand |= u64::from(digit != 0);
        }
        scale += match (has_room, is_behind_point) {
            (true, true) => -4,
            (false, false) => 4,
            _ => 0,
        };
    }
    // In two steps, since a power of two can be too small for a double although the product is not.
    let scale = scale.clamp(-2000, 2000);
    let power_of_two = |exponent: i64| f64::from_bits(((1023 + exponent) as u64) << 52);
    let value = significand as f64 * power_of_two(scale / 2) * power_of_two(scale - scale / 2);
    let is_held = value.is_finite() && (value == 0.0) == (significand == 0);
    (has_digits && is_held).then_some(if is_negative { -value } else { value })
}

/// Why two decimal numbers were not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatError {
    /// One of them is not a number.
    NotANumber,
    /// The sum is not finite.
    NotFinite,
}

/// Adds two numbers given as text and formats the sum as `INCRBYFLOAT` does: no exponent, at most 17 digits after the
/// point, no trailing zeros, no negative zero.
///
/// ```
/// use kv::number::add_floats;
/// assert_eq!(add_floats(b"0.1", b"0.2").unwrap(), "0.3");
/// assert_eq!(add_floats(b"3.0e3", b"200").unwrap(), "3200");
/// ```
///
/// # Errors
/// [`FloatError`] when one is not a number, or the sum is not finite.
pub fn add_floats(first: &[u8], second: &[u8]) -> Result<String, FloatError> {
    let first_float = parse_float(first).ok_or(FloatError::NotANumber)?;
    let second_float = parse_float(second).ok_or(FloatError::NotANumber)?;
    let exact =
        Decimal::parse(first).zip(Decimal::parse(second)).and_then(|(first, second)| first.add(second));
    let text = match exact {
        Some(sum) => sum.write(),
        None => {
            let sum = first_float + second_float;
            if !sum.is_finite() {
                return Err(FloatError::NotFinite);
            }
            whole_text(sum).unwrap_or_else(|| format!("{sum:.17}"))
        }
    };
    Ok(trim(text))
}

/// All digits of a number that is large enough to be whole; `None` for a smaller one. The general way to format a number
/// exactly takes some twenty times as long.
fn whole_text(value: f64) -> Option<String> {
    const LIMB: u64 = 1_000_000_000;
    const FRACTION_BITS: u64 = 52;
    let bits = value.abs().to_bits();
    let mut shift = (bits >> FRACTION_BITS).checked_sub(1023 + FRACTION_BITS)?;
    let significand = bits & ((1 << FRACTION_BITS) - 1) | 1 << FRACTION_BITS;
    // The number in limbs of nine digits, the lowest first.
    let mut limbs = vec![significand % LIMB, significand / LIMB];
    while shift > 0 {
        let by = shift.min(32);
        let mut carry = 0;
        for limb in &mut limbs {
            let product = (*limb << by) + carry;
            (*limb, carry) = (product % LIMB, product / LIMB);
        }
        if carry > 0 {
            limbs.extend([carry % LIMB, carry / LIMB]);
        }
        shift -= by;
    }
    while limbs.len() > 1 && limbs.last() == Some(&0) {
        limbs.pop();
    }
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    let mut highest_first = limbs.iter().rev();
    text.push_str(&highest_first.next()?.to_string());
    highest_first.for_each(|limb| text.push_str(&format!("{limb:09}")));
    Some(text)
}

/// Removes trailing zeros after the point, a trailing point, and the sign of a zero.
fn trim(mut text: String) -> String {
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    if text == "-0" { "0".to_owned() } else { text }
}

/// `units` divided by ten to the power of `scale`.
#[derive(Clone, Copy)]
struct Decimal {
    units: i128,
    scale: u32,
}

impl Decimal {
    /// Parses text that [`parse_float`] has accepted; `None` when an `i128` cannot hold its digits.
    fn parse(text: &[u8]) -> Option<Decimal> {
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let mut halves = text.split(|byte| matches!(byte, b'e' | b'E'));
        let significand = halves.next()?;
        let exponent: i32 = match halves.next() {
            Some(digits) => std::str::from_utf8(digits).ok()?.parse().ok()?,
            None => 0,
        };
        let mut units: i128 = 0;
        let mut scale: i32 = 0;
        let mut after_point = false;
        // Zeros are counted, not appended, until another digit follows, so that trailing zeros take no room in `units`.
        let mut zeros: u32 = 0;
        for byte in significand {
            match byte {
                b'.' => after_point = true,
                b'0' => {
                    zeros += 1;
                    scale += i32::from(after_point);
                }
                b'1'..=b'9' => {
                    let shift = if units == 0 { 1 } else { 10i128.checked_pow(zeros + 1)? };
                    units = units.checked_mul(shift)?.checked_add(i128::from(byte - b'0'))?;
                    zeros = 0;
                    scale += i32::from(after_point);
                }
                _ => return None,
            }
        }
        if units == 0 {
            return Some(Decimal { units: 0, scale: 0 });
        }
        scale = scale.checked_sub_unsigned(zeros)?.checked_sub(exponent)?;
        if scale < 0 {
            units = units.checked_mul(10i128.checked_pow(scale.unsigned_abs())?)?;
            scale = 0;
        }
        Some(Decimal { units: if negative { -units } else { units }, scale: scale.unsigned_abs() })
    }

    fn add(self, other: Decimal) -> Option<Decimal> {
        let scale = self.scale.max(other.scale);
        let lift = |number: Decimal| number.units.checked_mul(10i128.checked_pow(scale - number.scale)?);
        Some(Decimal { units: lift(self)?.checked_add(lift(other)?)?, scale })
    }

    /// Formats the number with at most [`FRACTION_DIGITS_MAX`] digits after the point, a half rounded to even.
    fn write(self) -> String {
        let mut units = self.units.unsigned_abs();
        let mut scale = self.scale;
        if scale > FRACTION_DIGITS_MAX {
            // `add` has computed this power already, so it fits.
            let divisor = 10u128.pow(scale - FRACTION_DIGITS_MAX);
            let (quotient, rest) = (units / divisor, units % divisor);
            let up = rest * 2 > divisor || (rest * 2 == divisor && quotient % 2 == 1);
            units = quotient + u128::from(up);
            scale = FRACTION_DIGITS_MAX;
        }
        let divisor = 10u128.pow(scale);
        let sign = if self.units < 0 { "-" } else { "" };
        let (whole, fraction) = (units / divisor, units % divisor);
        if scale == 0 {
            return format!("{sign}{whole}");
        }
        format!("{sign}{whole}.{fraction:0width$}", width = scale as usize)
    }
}

/// Formats a number as a decimal with at most 17 digits after the point, as Redis formats coordinates.
///
/// ```
/// use kv::number::format_decimal;
/// assert_eq!(format_decimal(2.5), "2.5");
/// assert_eq!(format_decimal(-0.0), "0");
/// ```
pub fn format_decimal(value: f64) -> String {
    let text = format!("{value:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Formats a number as Redis does: the fewest digits that parse to the same number, whole numbers without a point, and
/// an exponent for those that would need many zeros.
pub fn format_double(value: f64) -> String {
    // Up to here every whole number is exactly representable, and Redis formats it as an integer.
    const WHOLE_MAX: f64 = (1_i64 << 52) as f64;
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return value.to_string();
    }
    if value != 0.0 && value.abs() < WHOLE_MAX && value.trunc() == value {
        // As an integer it takes a third of the time.
        return (value as i64).to_string();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    place_point(sign, &digits, exponent)
}

/// Formats `d.ddd * 10^exponent` by the rules of fpconv, the library that Redis formats numbers with.
fn place_point(sign: &str, digits: &str, exponent: i32) -> String {
    let count = digits.len() as i32;
    // The number is `digits * 10^power`.
    let power = exponent - (count - 1);
    if power >= 0 && exponent < count + 7 {
        return format!("{sign}{digits}{}", "0".repeat(power as usize));
    }
    if power < 0 && (power > -7 || exponent.abs() < 4) {
        if exponent < 0 {
            return format!("{sign}0.{}{digits}", "0".repeat((-exponent - 1) as usize));
        }
        let (whole, fraction) = digits.split_at(exponent as usize + 1);
        return format!("{sign}{whole}.{fraction}");
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{point}{rest}e{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_canonical_integers_are_parsed() {
        let integers: &[(&str, i64)] = &[
            ("0", 0),
            ("-1", -1),
            ("10", 10),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ];
        for (text, value) in integers {
            assert_eq!(parse_integer(text.as_bytes()), Some(*value));
        }
        let others = ["", "-", "+1", " 1", "1 ", "01", "-0", "-01", "1.0", "1e3", "0x1", "1\0"];
        let too_large =
            ["9223372036854775808", "-9223372036854775809", "10000000000000000000", "99999999999999999999"];
        for text in others.iter().chain(&too_large) {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn floats_are_parsed_as_in_redis() {
        for text in
            ["1", "+1", "-1", ".5", "5.", "1e5", "1E+5", "1e-5", "inf", "-INF", "+Infinity", "0e-9999"]
        {
            assert!(parse_float(text.as_bytes()).is_some(), "{text:?}");
        }
        let refused =
            ["", ".", "-", "e5", "1e", "1e+", " 1", "1 ", "1\0", "nan", "-nan", "1_0", "1,5", "1.2.3", "in"];
        for text in refused.iter().chain(&["1e5000", "-1e5000", "1e-5000"]) {
            assert_eq!(parse_float(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_float(&b"1".repeat(FLOAT_TEXT_BYTES_MAX)), None);
        assert_eq!(parse_float(b"\xff"), None);
    }

    #[test]
    fn hexadecimal_numbers_are_parsed_as_in_c() {
        for (text, value) in [
            ("0x10", 16.0),
            ("-0X.8", -0.5),
            ("+0x1.p-2", 0.25),
            ("0xAbP+1", 342.0),
            ("0x0p99999999999999999999", 0.0),
            ("0x1fffffffffffff", 9_007_199_254_740_991.0),
            // Halfway between two doubles: to the even one, unless there is more.
            ("0x100000000000008000000", 1_208_925_819_614_629_174_706_176.0),
            ("0x100000000000008000001", 1_208_925_819_614_629_443_141_632.0),
            ("0x0.00000000000000000000000000000001p128", 1.0),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1p-1074", 5e-324),
            ("0x1000000000000000p-1134", 5e-324),
        ] {
            assert_eq!(parse_hexadecimal(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "", "x1", "0x", "0x.", "0x1p", "0x1p+", "0x1.1.1", "0xg", "0x1p1.0", " 0x1", "0x1 ", "--0x1",
            "inf",
        ] {
            assert_eq!(parse_hexadecimal(text.as_bytes()), None, "{text:?}");
        }
        for text in ["0x1p1024", "-0x1p99999999999999999999", "0x1p-1080", "0x1p-99999999999999999999"] {
            assert_eq!(parse_hexadecimal(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn sums_are_exact_where_the_digits_allow() {
        let sums = [
            ("0.1", "0.2", "0.3"),
            ("3.0e3", "200", "3200"),
            ("5.0e3", "0", "5000"),
            ("-1", "1", "0"),
            ("-0", "0", "0"),
            ("0.5", "-0.5", "0"),
            ("1", "-1.1", "-0.1"),
            ("+5", ".5", "5.5"),
            ("5.", "1e-3", "5.001"),
            ("9007199254740993", "0", "9007199254740993"),
            ("1e18", "0.1", "1000000000000000000.1"),
            ("99999999999999999.9", "0.05", "99999999999999999.95"),
            ("123456789012345678901234567890", "1", "123456789012345678901234567891"),
            // At most 17 digits after the point; a half goes to the even neighbour.
            ("0.1", "1e-17", "0.10000000000000001"),
            ("0", "6e-18", "0.00000000000000001"),
            ("0", "5e-18", "0"),
            ("0", "15e-18", "0.00000000000000002"),
            ("0", "1e-18", "0"),
            ("0", "-1e-18", "0"),
            ("3.14159265358979323846", "0", "3.14159265358979324"),
            ("1.999999999999999999", "0", "2"),
        ];
        for (first, second, sum) in sums {
            assert_eq!(
                add_floats(first.as_bytes(), second.as_bytes()).as_deref(),
                Ok(sum),
                "{first} + {second}"
            );
        }
    }

    #[test]
    fn other_sums_are_rounded_to_doubles() {
        // As Redis does, a double is written with all its digits.
        assert_eq!(add_floats(b"1e40", b"1").unwrap(), "10000000000000000303786028427003666890752");
        let tiny = format!("0.{}1", "0".repeat(60));
        assert_eq!(add_floats(b"0.5", tiny.as_bytes()).unwrap(), "0.5");
        assert_eq!(add_floats(b"1e308", b"1e308"), Err(FloatError::NotFinite));
        assert_eq!(add_floats(b"inf", b"1"), Err(FloatError::NotFinite));
        assert_eq!(add_floats(b"inf", b"-inf"), Err(FloatError::NotFinite));
        assert_eq!(add_floats(b"1", b"x"), Err(FloatError::NotANumber));
    }

    proptest! {
        #[test]
        fn all_digits_of_a_whole_number_are_those_of_the_general_way(bits: u64) {
            let value = f64::from_bits(bits);
            match whole_text(value).filter(|_| value.is_finite()) {
                Some(text) => prop_assert_eq!(text, format!("{value:.0}")),
                None => prop_assert!(!value.is_finite() || value.abs() < (1_u64 << 52) as f64),
            }
        }

        #[test]
        fn whole_doubles_are_formatted_as_integers(value in -(1_i64 << 52)..1_i64 << 52) {
            prop_assert_eq!(format_double(value as f64), (value as f64).to_string());
        }

        #[test]
        fn formatted_integers_are_parsed_back(value in any::<i64>()) {
            let mut buffer = [0; INTEGER_TEXT_BYTES_MAX];
            let text = format_integer(value, &mut buffer);
            prop_assert_eq!(std::str::from_utf8(text).unwrap(), value.to_string());
            prop_assert_eq!(parse_integer(text), Some(value));
        }

        #[test]
        fn any_text_can_be_added_without_a_panic(first in "[-+0-9.eEinf ]{0,40}", second in "[-+0-9.eE]{0,40}") {
            let _ = parse_integer(first.as_bytes());
            if let Ok(sum) = add_floats(first.as_bytes(), second.as_bytes()) {
                prop_assert!(parse_float(sum.as_bytes()).is_some(), "{} is no number", sum);
            }
        }

        #[test]
        fn cents_add_up(first in -1_000_000_000i64..1_000_000_000, second in -1_000_000_000i64..1_000_000_000) {
            let text = |cents: i64| {
                let sign = if cents < 0 { "-" } else { "" };
                format!("{sign}{}.{:02}", cents.abs() / 100, cents.abs() % 100)
            };
            let sum = add_floats(text(first).as_bytes(), text(second).as_bytes()).unwrap();
            prop_assert_eq!(sum, trim(text(first + second)));
        }
    }
}
