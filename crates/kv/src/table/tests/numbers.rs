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

#[test]
fn a_number_stays_within_its_bounds() {
    play(
        r#"
        INCREX n                                    -> [1 1]
        INCREX n BYINT 5 UBOUND 10                  -> [6 5]
        INCREX n BYINT 5 UBOUND 10                  -> [6 0]
        INCREX n BYINT 5 UBOUND 10 SATURATE         -> [10 4]
        INCREX n BYINT -5 UBOUND 3 SATURATE         -> [3 -7]
        INCREX n BYINT -1 UBOUND 1                  -> [3 0]
        INCREX n BYINT -2 UBOUND 1                  -> [1 -2]
        INCREX n BYINT -20 LBOUND -5 SATURATE       -> [-5 -6]
        INCREX n BYINT -9223372036854775808         -> [-5 0]
        INCREX n BYINT -9223372036854775808 SATURATE -> [-9223372036854775808 -9223372036854775803]
        INCREX n LBOUND 5 SATURATE                  -> !ERR applied increment would overflow
        INCREX new BYINT 5 LBOUND 10                -> [0 0]
        EXISTS new                                  -> 0
        SET n x                                     -> OK
        INCREX n                                    -> !ERR value is not an integer or out of range
        RPUSH l x                                   -> 1
        INCREX l                                    -> !WRONGTYPE Operation against a key holding the wrong kind of value
    "#,
    );
}

#[test]
fn a_decimal_number_stays_within_its_bounds() {
    play(
        r#"
        SET f 0.1                                   -> OK
        INCREX f BYFLOAT 0.2                        -> [0.3 0.2]
        GET f                                       -> "0.3"
        INCREX f BYFLOAT 100 UBOUND 15.3            -> [0.3 0]
        INCREX f BYFLOAT 100 UBOUND 15.3 SATURATE   -> [15.3 15]
        GET f                                       -> "15.3"
        INCREX f BYFLOAT -100 LBOUND -5.5 SATURATE  -> [-5.5 -20.8]
        INCREX f BYFLOAT 100 UBOUND 0 SATURATE      -> [0 5.5]
        SET f -1e308                                -> OK
        INCREX f BYFLOAT 1 LBOUND 1e308 UBOUND 1.5e308 SATURATE -> !ERR applied increment would be Infinity
        SET f inf                                   -> OK
        INCREX f BYFLOAT 1                          -> !ERR value cannot be Infinity
        SET f x                                     -> OK
        INCREX f BYFLOAT 1                          -> !ERR value is not a valid float
    "#,
    );
}

#[test]
fn a_counter_gets_an_expiry_with_its_first_step() {
    play(
        r#"
        INCREX n UBOUND 2 EX 10 ENX                 -> [1 1]
        TTL n                                       -> 10
        INCREX n UBOUND 2 EX 60 ENX                 -> [2 1]
        TTL n                                       -> 10
        INCREX n UBOUND 2 EX 60                     -> [2 0]
        TTL n                                       -> 10
        INCREX n EX 60                              -> [3 1]
        TTL n                                       -> 60
        INCREX n PERSIST                            -> [4 1]
        TTL n                                       -> -1
        INCREX n EXAT 1                             -> [5 1]
        EXISTS n                                    -> 0
    "#,
    );
}
