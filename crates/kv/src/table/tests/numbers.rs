//! Counters. Parsing and formatting of numbers is tested in `number`.

use super::script::play;

#[test]
fn counters_count_from_zero_and_keep_their_expiry() {
    play(
        r#"
        INCRBY n 1              -> 1
        INCRBY n 41             -> 42
        INCRBY n -50            -> -8
        GET n                   -> "-8"
        EXPIRE n EX 10          -> 1
        INCRBY n 1              -> -7
        TTL n                   -> 10
        INCRBY n 100000000000   -> 99999999993
        GET n                   -> "99999999993"
    "#,
    );
}

#[test]
fn a_value_that_is_not_an_integer_is_left_unchanged() {
    play(
        r#"
        SET n 12a               -> OK
        INCRBY n 1              -> !ERR value is not an integer or out of range
        SET n 012               -> OK
        INCRBY n 1              -> !ERR value is not an integer or out of range
        SET n ""                -> OK
        INCRBY n 1              -> !ERR value is not an integer or out of range
        SET n 9223372036854775808 -> OK
        INCRBY n 1              -> !ERR value is not an integer or out of range
        GET n                   -> "9223372036854775808"
    "#,
    );
}

#[test]
fn a_sum_that_does_not_fit_is_refused() {
    play(
        r#"
        SET n 9223372036854775807 -> OK
        INCRBY n 1              -> !ERR increment or decrement would overflow
        INCRBY n -1             -> 9223372036854775806
        SET n -9223372036854775808 -> OK
        INCRBY n -1             -> !ERR increment or decrement would overflow
        GET n                   -> "-9223372036854775808"
    "#,
    );
}

#[test]
fn decimals_are_added_without_binary_rounding_errors() {
    play(
        r#"
        INCRBYFLOAT f 0.1       -> "0.1"
        INCRBYFLOAT f 0.2       -> "0.3"
        SET f 10.50             -> OK
        INCRBYFLOAT f 0.1       -> "10.6"
        INCRBYFLOAT f -5        -> "5.6"
        SET f 5.0e3             -> OK
        INCRBYFLOAT f 2.0e2     -> "5200"
        EXPIRE f EX 10          -> 1
        INCRBYFLOAT f -5200     -> "0"
        TTL f                   -> 10
        SET f abc               -> OK
        INCRBYFLOAT f 1         -> !ERR value is not a valid float
        SET f 1                 -> OK
        INCRBYFLOAT f inf       -> !ERR increment would produce NaN or Infinity
        GET f                   -> "1"
    "#,
    );
}
