//! Streams: replies of their commands, large ones compared with small ones, and a comparison with a model.

use super::script::play;
use super::*;
use crate::command::{DELIVERED_MAX, Draft, Script, ScriptLimits, StreamCommand, StreamId};
use crate::table::kind::Kind;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

const WRONGTYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn entries_have_ids_that_ascend() {
    play(
        r#"
        XADD s * f v            -> "1000000-0"
        XADD s * f w            -> "1000000-1"
        wait 5
        XADD s * g w h x        -> "1000005-0"
        XADD s 1000005-* f v    -> "1000005-1"
        XADD s 1000004-* f v    -> !ERR The ID specified in XADD is equal or smaller than the target stream top item
        XADD s 1000005-1 f v    -> !ERR The ID specified in XADD is equal or smaller than the target stream top item
        XADD s 2000000-7 f v    -> "2000000-7"
        XADD s * f v            -> "2000000-8"
        XADD s x f v            -> !ERR Invalid stream ID specified as stream command argument
        XLEN s                  -> 6
        XRANGE s - + COUNT 3    -> [["1000000-0" ["f" "v"]] ["1000000-1" ["f" "w"]] ["1000005-0" ["g" "w" "h" "x"]]]
        XADD s 18446744073709551615-18446744073709551614 f v -> "18446744073709551615-18446744073709551614"
        XADD s * f v            -> "18446744073709551615-18446744073709551615"
        XADD s * f v            -> !ERR The stream has exhausted the last possible ID, unable to add more items
        XADD t 0-* f v          -> "0-1"
        XADD t 1-18446744073709551615 f v -> "1-18446744073709551615"
        XADD t 1-* f v          -> !ERR The ID specified in XADD is equal or smaller than the target stream top item
        XADD no NOMKSTREAM * f v -> nil
        XADD t NOMKSTREAM 5 f v -> "5-0"
        XLEN no                 -> 0
        EXISTS no               -> 0
        TYPE s                  -> stream
        ENCODING s              -> "stream"
    "#,
    );
}

#[test]
fn ranges_of_ids_may_exclude_their_ends() {
    play(
        r#"
        XADD s 1-1 n 1          -> "1-1"
        XADD s 1-2 n 12         -> "1-2"
        XADD s 3-0 n -7000      -> "3-0"
        XRANGE s 1 1            -> [["1-1" ["n" "1"]] ["1-2" ["n" "12"]]]
        XRANGE s (1-1 (3-0      -> [["1-2" ["n" "12"]]]
        XRANGE s 2 +            -> [["3-0" ["n" "-7000"]]]
        XRANGE s 3 1            -> []
        XREVRANGE s + - COUNT 2 -> [["3-0" ["n" "-7000"]] ["1-2" ["n" "12"]]]
        XREVRANGE s (3-0 -      -> [["1-2" ["n" "12"]] ["1-1" ["n" "1"]]]
        XRANGE s - + COUNT 0    -> aborted
        XRANGE no - + COUNT 0   -> []
        XRANGE s - (0-0         -> !ERR invalid end ID for the interval
        XRANGE s (18446744073709551615-18446744073709551615 + -> !ERR invalid start ID for the interval
        XREAD STREAMS s 1-1     -> {"s"=[["1-2" ["n" "12"]] ["3-0" ["n" "-7000"]]]}
        XREAD COUNT 1 STREAMS no s s 0 0 $ -> {"s"=[["1-1" ["n" "1"]]]}
        XREAD STREAMS s $       -> aborted
        XREAD STREAMS s 3-0     -> aborted
        XREAD STREAMS s no +  + -> {"s"=[["3-0" ["n" "-7000"]]]}
        XREAD COUNT 2 STREAMS s + -> {"s"=[["3-0" ["n" "-7000"]]]}
        XDEL s 3-0              -> 1
        XREAD STREAMS s +       -> {"s"=[["1-2" ["n" "12"]]]}
        XTRIM s MAXLEN 0        -> 2
        XREAD STREAMS s +       -> aborted
        XREAD STREAMS s x       -> !ERR Invalid stream ID specified as stream command argument
    "#,
    );
}

#[test]
fn entries_are_removed_one_by_one_or_from_the_front() {
    let mut store = Store::new();
    (1..=25).for_each(|id| store.play(&format!("XADD s {id} f v -> \"{id}-0\"")));
    store.play(
        r#"
        XDEL s 3 3 99           -> 1
        XDEL s 4 x              -> !ERR Invalid stream ID specified as stream command argument
        XDEL no x               -> 0
        XTRIM s MAXLEN 23       -> 1
        XTRIM s MINID 5         -> 2
        XTRIM s MINID 5         -> 0
        XLEN s                  -> 21
        XTRIM s MAXLEN ~ 12     -> 6
        XTRIM s MAXLEN ~ 12     -> 0
        XTRIM s MAXLEN ~ 0 LIMIT 9 -> 0
        XTRIM s MAXLEN ~ 0 LIMIT 10 -> 10
        XADD s MAXLEN ~ 0 26 f v -> "26-0"
        XLEN s                  -> 0
        XTRIM no MAXLEN 0       -> 0
        XADD s 26 f v           -> !ERR The ID specified in XADD is equal or smaller than the target stream top item
        XADD s MINID 28 27 f v  -> "27-0"
        XLEN s                  -> 0
        EXISTS s                -> 1
        XADD s MAXLEN 1 29 f v  -> "29-0"
        XRANGE s - +            -> [["29-0" ["f" "v"]]]
    "#,
    );
}

#[test]
fn a_delivered_entry_is_pending_until_acknowledged() {
    play(
        r#"
        XGROUP CREATE s g $     -> !ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.
        XGROUP CREATE s g $ MKSTREAM -> OK
        XGROUP CREATE s g $     -> !BUSYGROUP Consumer Group name already exists
        XREADGROUP g a STREAMS s > -> aborted
        XADD s 1 f 1            -> "1-0"
        XADD s 2 f 2            -> "2-0"
        XADD s 3 f 3            -> "3-0"
        XREADGROUP g a COUNT 2 STREAMS s > -> {"s"=[["1-0" ["f" "1"]] ["2-0" ["f" "2"]]]}
        wait 7
        XREADGROUP g b STREAMS s > -> {"s"=[["3-0" ["f" "3"]]]}
        XREADGROUP g b STREAMS s > -> aborted
        XPENDING s g            -> [3 "1-0" "3-0" [["a" "2"] ["b" "1"]]]
        XPENDING s g 0 - + 10   -> [["1-0" "a" 7 1] ["2-0" "a" 7 1] ["3-0" "b" 0 1]]
        XPENDING s g 1 (1 + 10  -> [["2-0" "a" 7 1]]
        XPENDING s g 0 - + 1 b  -> [["3-0" "b" 0 1]]
        XPENDING s g 0 - + 1 c  -> []
        XDEL s 1                -> 1
        XREADGROUP g a STREAMS s 0 -> {"s"=[["1-0" aborted] ["2-0" ["f" "2"]]]}
        XREADGROUP g a STREAMS s 1 -> {"s"=[["2-0" ["f" "2"]]]}
        XREADGROUP g a STREAMS s 2 -> {"s"=[]}
        XPENDING s g 0 - + 10 a -> [["1-0" "a" 7 1] ["2-0" "a" 0 3]]
        XACK s g 2 2 9          -> 1
        XACK s no 3             -> 0
        XACK no g 3             -> 0
        XPENDING s g            -> [2 "1-0" "3-0" [["a" "1"] ["b" "1"]]]
        XGROUP DELCONSUMER s g a -> 1
        XGROUP DELCONSUMER s g a -> 0
        XPENDING s g            -> [1 "3-0" "3-0" [["b" "1"]]]
        XADD s 4 f 4            -> "4-0"
        XREADGROUP g c NOACK STREAMS s > -> {"s"=[["4-0" ["f" "4"]]]}
        XACK s g 3              -> 1
        XPENDING s g            -> [0 nil nil aborted]
        XGROUP SETID s g 0      -> OK
        XREADGROUP g b COUNT 1 STREAMS s > -> {"s"=[["2-0" ["f" "2"]]]}
        XGROUP SETID s g 0      -> OK
        XREADGROUP g c COUNT 1 STREAMS s > -> {"s"=[["2-0" ["f" "2"]]]}
        XPENDING s g            -> [1 "2-0" "2-0" [["c" "1"]]]
        XGROUP DESTROY s g      -> 1
        XGROUP DESTROY s g      -> 0
        XPENDING s g            -> !NOGROUP No such key \'s\' or consumer group \'g\'
        XREADGROUP g a STREAMS s > -> !NOGROUP No such key \'s\' or consumer group \'g\' in XREADGROUP with GROUP option
        XGROUP CREATECONSUMER s g a -> !NOGROUP No such consumer group \'g\' for key name \'s\'
        XGROUP CREATE s g 0     -> OK
        XPENDING s g            -> [0 nil nil aborted]
        XGROUP CREATECONSUMER s g a -> 1
        XGROUP CREATECONSUMER s g a -> 0
    "#,
    );
}

#[test]
fn pending_entries_pass_from_one_consumer_to_another() {
    let mut store = Store::new();
    (1..=4).for_each(|id| store.play(&format!("XADD s {id} f v -> \"{id}-0\"")));
    store.play(
        r#"
        XGROUP CREATE s g 0     -> OK
        XREADGROUP g a COUNT 3 STREAMS s > -> {"s"=[["1-0" ["f" "v"]] ["2-0" ["f" "v"]] ["3-0" ["f" "v"]]]}
        wait 10
        XCLAIM s g b 11 1       -> []
        XCLAIM s g b 10 1       -> [["1-0" ["f" "v"]]]
        XCLAIM s g b 0 2 JUSTID -> ["2-0"]
        XPENDING s g 0 - + 9    -> [["1-0" "b" 0 2] ["2-0" "b" 0 1] ["3-0" "a" 10 1]]
        XCLAIM s g b 0 4        -> []
        XCLAIM s g b 9 4 FORCE  -> [["4-0" ["f" "v"]]]
        XCLAIM s g b 0 3 IDLE 5 RETRYCOUNT 9 LASTID 4 -> [["3-0" ["f" "v"]]]
        XCLAIM s g c 0 2 TIME 999990 -> [["2-0" ["f" "v"]]]
        XCLAIM s g c 0 1 TIME 9999999 -> [["1-0" ["f" "v"]]]
        XPENDING s g 0 - + 9    -> [["1-0" "c" 0 3] ["2-0" "c" 20 2] ["3-0" "b" 5 9] ["4-0" "b" 0 2]]
        XINFO GROUPS s          -> [{"name"="g" "consumers"=3 "pending"=4 "last-delivered-id"="4-0" "entries-read"=3 "lag"=1}]
        XDEL s 3                -> 1
        XCLAIM s g a 0 3        -> []
        XDEL s 1                -> 1
        XAUTOCLAIM s g a 0 0 COUNT 1 -> ["2-0" [] ["1-0"]]
        XAUTOCLAIM s g a 0 2 COUNT 1 -> ["4-0" [["2-0" ["f" "v"]]] []]
        XAUTOCLAIM s g a 99 - JUSTID -> ["0-0" [] []]
        XAUTOCLAIM s g a 0 (2 JUSTID -> ["0-0" ["4-0"] []]
        XPENDING s g            -> [2 "2-0" "4-0" [["a" "2"]]]
        XCLAIM s no a 0 1       -> !NOGROUP No such key \'s\' or consumer group \'no\'
        XAUTOCLAIM no g a 0 0   -> !NOGROUP No such key \'no\' or consumer group \'g\'
    "#,
    );
}

#[test]
fn entries_are_removed_with_regard_to_groups() {
    let mut store = Store::new();
    (1..=6).for_each(|id| store.play(&format!("XADD s {id} f v -> \"{id}-0\"")));
    store.play(
        r#"
        XDELEX no ACKED 1 2     -> [-1 -1]
        XACKDEL no g ACKED 1    -> [-1]
        XDELEX s ACKED 1 x      -> !ERR Invalid stream ID specified as stream command argument
        XDELEX s ACKED 6 9      -> [1 -1]
        XGROUP CREATE s g 0     -> OK
        XGROUP CREATE s h 0     -> OK
        XACKDEL s no ACKED 1    -> [-1]
        XDELEX s ACKED 1        -> [2]
        XREADGROUP g a COUNT 4 STREAMS s > -> {"s"=[["1-0" ["f" "v"]] ["2-0" ["f" "v"]] ["3-0" ["f" "v"]] ["4-0" ["f" "v"]]]}
        XREADGROUP h b COUNT 4 STREAMS s > -> {"s"=[["1-0" ["f" "v"]] ["2-0" ["f" "v"]] ["3-0" ["f" "v"]] ["4-0" ["f" "v"]]]}
        XACKDEL s g ACKED 1 1 5 -> [2 -1 -1]
        XACKDEL s h ACKED 1     -> [1]
        XDELEX s KEEPREF 2      -> [1]
        XACKDEL s g KEEPREF 2   -> [1]
        XPENDING s h            -> [3 "2-0" "4-0" [["b" "3"]]]
        XDELEX s DELREF 2 3     -> [-1 1]
        XPENDING s h            -> [1 "4-0" "4-0" [["b" "1"]]]
        XPENDING s g            -> [1 "4-0" "4-0" [["a" "1"]]]
        XACKDEL s g DELREF 4    -> [1]
        XPENDING s h            -> [0 nil nil aborted]
        XRANGE s - +            -> [["5-0" ["f" "v"]]]
        XINFO STREAM s          -> {"length"=1 "radix-tree-keys"=1 "radix-tree-nodes"=2 "last-generated-id"="6-0" "max-deleted-entry-id"="6-0" "entries-added"=6 "recorded-first-entry-id"="5-0" "groups"=2 "first-entry"=["5-0" ["f" "v"]] "last-entry"=["5-0" ["f" "v"]]}
    "#,
    );
}

#[test]
fn a_stream_is_trimmed_with_regard_to_groups() {
    let mut store = Store::new();
    (1..=5).for_each(|id| store.play(&format!("XADD s {id} f v -> \"{id}-0\"")));
    store.play(
        r#"
        XGROUP CREATE s g 0     -> OK
        XADD s MAXLEN 1 ACKED 6 f v -> "6-0"
        XLEN s                  -> 6
        XREADGROUP g a COUNT 2 STREAMS s > -> {"s"=[["1-0" ["f" "v"]] ["2-0" ["f" "v"]]]}
        XACK s g 1              -> 1
        XADD s MAXLEN 1 ACKED 7 f v -> "7-0"
        XLEN s                  -> 6
        XREADGROUP g a STREAMS s > -> {"s"=[["3-0" ["f" "v"]] ["4-0" ["f" "v"]] ["5-0" ["f" "v"]] ["6-0" ["f" "v"]] ["7-0" ["f" "v"]]]}
        XACK s g 3 5            -> 2
        XTRIM s MINID 5 ACKED   -> 1
        XRANGE s - 6            -> [["2-0" ["f" "v"]] ["4-0" ["f" "v"]] ["5-0" ["f" "v"]] ["6-0" ["f" "v"]]]
        XTRIM s MAXLEN 2 DELREF -> 3
        XPENDING s g            -> [2 "6-0" "7-0" [["a" "2"]]]
        XTRIM s MAXLEN 1        -> 1
        XPENDING s g            -> [2 "6-0" "7-0" [["a" "2"]]]
        XTRIM s MAXLEN ~ 0 DELREF -> 1
        XPENDING s g            -> [1 "6-0" "6-0" [["a" "1"]]]
    "#,
    );
}

#[test]
fn a_consumer_that_gets_nothing_is_seen_and_not_active() {
    play(
        r#"
        XGROUP CREATE s g $ MKSTREAM -> OK
        XREADGROUP g a 2 STREAMS s > -> aborted
        wait 10
        XINFO CONSUMERS s g 2   -> [{"name"="a" "pending"=0 "idle"=10 "inactive"=-1}]
        XADD s 1 f v            -> "1-0"
        XREADGROUP g a 2 STREAMS s > -> {"s"=[["1-0" ["f" "v"]]]}
        wait 5
        XINFO CONSUMERS s g 2   -> [{"name"="a" "pending"=1 "idle"=5 "inactive"=5}]
        XREADGROUP g a 2 STREAMS s > -> aborted
        wait 3
        XREADGROUP g a 2 STREAMS s > -> aborted
        XINFO CONSUMERS s g 2   -> [{"name"="a" "pending"=1 "idle"=0 "inactive"=8}]
        XINFO CONSUMERS s g     -> [{"name"="a" "pending"=1 "idle"=0}]
        XINFO FULL s 1 2        -> {"length"=1 "radix-tree-keys"=1 "radix-tree-nodes"=2 "last-generated-id"="1-0" "max-deleted-entry-id"="0-0" "entries-added"=1 "recorded-first-entry-id"="1-0" "idmp-duration"=100 "idmp-maxsize"=100 "pids-tracked"=0 "iids-tracked"=0 "iids-added"=0 "iids-duplicates"=0 "entries"=[["1-0" ["f" "v"]]] "groups"=[{"name"="g" "last-delivered-id"="1-0" "entries-read"=1 "lag"=0 "pel-count"=1 "pending"=[["1-0" "a" 1000010 1]] "consumers"=[{"name"="a" "seen-time"=1000018 "active-time"=1000010 "pel-count"=1 "pending"=[["1-0" 1000010 1]]}]}]}
        XCLAIM s g a 0 1        -> [["1-0" ["f" "v"]]]
        XINFO CONSUMERS s g 2   -> [{"name"="a" "pending"=1 "idle"=0 "inactive"=0}]
        XREADGROUP g b STREAMS s > -> aborted
        XINFO CONSUMERS s g     -> [{"name"="a" "pending"=1 "idle"=0}]
        XGROUP CREATE s h $ ATMOST 9 -> OK
        XGROUP CREATE s i $ ATMOST 0 -> OK
        XINFO GROUPS s          -> [{"name"="g" "consumers"=1 "pending"=1 "last-delivered-id"="1-0" "entries-read"=1 "lag"=0} {"name"="h" "consumers"=0 "pending"=0 "last-delivered-id"="1-0" "entries-read"=1 "lag"=0} {"name"="i" "consumers"=0 "pending"=0 "last-delivered-id"="1-0" "entries-read"=0 "lag"=1}]
        XREADGROUP g c 2 STREAMS s > -> aborted
        XGROUP DELCONSUMER s g c -> 0
        XGROUP DESTROY s g      -> 1
    "#,
    );
}

#[test]
fn what_has_been_pending_for_long_is_claimed_by_the_next_reader() {
    let mut store = Store::new();
    (1..=4).for_each(|id| store.play(&format!("XADD s {id} f v -> \"{id}-0\"")));
    store.play(
        r#"
        XGROUP CREATE s g 0     -> OK
        XREADGROUP g a 2 COUNT 1 STREAMS s > -> {"s"=[["1-0" ["f" "v"]]]}
        wait 10
        XREADGROUP g a 2 COUNT 1 STREAMS s > -> {"s"=[["2-0" ["f" "v"]]]}
        XCLAIM s g a 0 1 IDLE 3 -> [["1-0" ["f" "v"]]]
        wait 10
        XCLAIM s g a 0 2 IDLE 20 JUSTID -> ["2-0"]
        XREADGROUP g b 2 CLAIM 14 COUNT 2 STREAMS s > -> {"s"=[["2-0" ["f" "v"] 20 1] ["3-0" ["f" "v"] 0 0]]}
        XREADGROUP g b 2 CLAIM 13 NOACK STREAMS s > -> {"s"=[["1-0" ["f" "v"] 13 2] ["4-0" ["f" "v"] 0 0]]}
        XREADGROUP g b 2 CLAIM 1 STREAMS s > -> aborted
        XPENDING s g 0 - + 9    -> [["1-0" "b" 0 3] ["2-0" "b" 0 2] ["3-0" "b" 0 1]]
        wait 5
        XDEL s 1 3              -> 2
        XREADGROUP g c 2 CLAIM 5 COUNT 1 STREAMS s > -> aborted
        XPENDING s g            -> [2 "2-0" "3-0" [["b" "2"]]]
        XREADGROUP g c 2 CLAIM 5 STREAMS s > -> {"s"=[["2-0" ["f" "v"] 5 2]]}
        XPENDING s g            -> [1 "2-0" "2-0" [["c" "1"]]]
        XREADGROUP g c 2 CLAIM 9223372036854775807 STREAMS s 0 -> {"s"=[["2-0" ["f" "v"]]]}
    "#,
    );
}

#[test]
fn what_a_consumer_gives_back_can_be_claimed_at_once() {
    let mut store = Store::new();
    (1..=4).for_each(|id| store.play(&format!("XADD s {id} f v -> \"{id}-0\"")));
    store.play(
        r#"
        XNACK s g FAIL 1        -> !NOGROUP No such key \'s\' or consumer group \'g\'
        XNACK no g FAIL 1       -> !NOGROUP No such key \'no\' or consumer group \'g\'
        XGROUP CREATE s g 0     -> OK
        XREADGROUP g a 2 COUNT 3 STREAMS s > -> {"s"=[["1-0" ["f" "v"]] ["2-0" ["f" "v"]] ["3-0" ["f" "v"]]]}
        XNACK s g SILENT 1 9    -> 1
        XNACK s g FAIL 2        -> 1
        XNACK s g FATAL 3       -> 1
        XNACK s g FAIL 4        -> 0
        XPENDING s g            -> [3 "1-0" "3-0" []]
        XPENDING s g 99999999 - + 9 -> [["1-0" "" -1 0] ["2-0" "" -1 1] ["3-0" "" -1 9223372036854775807]]
        XPENDING s g 0 - + 9 a  -> []
        XREADGROUP g b 2 CLAIM 9000 COUNT 1 STREAMS s > -> {"s"=[["1-0" ["f" "v"] -1 0]]}
        XAUTOCLAIM s g b 9000 - JUSTID -> ["0-0" ["2-0" "3-0"] []]
        XCLAIM s g b 0 3        -> [["3-0" ["f" "v"]]]
        XPENDING s g 0 - + 9 b  -> [["1-0" "b" 0 1] ["2-0" "b" 0 1] ["3-0" "b" 0 9223372036854775807]]
        XNACK s g FAIL 4 FORCE  -> 1
        XNACK s g SILENT 2 RETRYCOUNT 7 -> 1
        XINFO FULL s 9          -> {"length"=4 "radix-tree-keys"=1 "radix-tree-nodes"=2 "last-generated-id"="4-0" "max-deleted-entry-id"="0-0" "entries-added"=4 "recorded-first-entry-id"="1-0" "entries"=[["1-0" ["f" "v"]] ["2-0" ["f" "v"]] ["3-0" ["f" "v"]] ["4-0" ["f" "v"]]] "groups"=[{"name"="g" "last-delivered-id"="3-0" "entries-read"=3 "lag"=1 "pel-count"=4 "pending"=[["1-0" "b" 1000000 1] ["2-0" "" 0 7] ["3-0" "b" 1000000 9223372036854775807] ["4-0" "" 0 0]] "consumers"=[{"name"="a" "seen-time"=1000000 "pel-count"=0 "pending"=[]} {"name"="b" "seen-time"=1000000 "pel-count"=2 "pending"=[["1-0" 1000000 1] ["3-0" 1000000 9223372036854775807]]}]}]}
        XACK s g 4              -> 1
        XGROUP DELCONSUMER s g b -> 2
        XPENDING s g            -> [1 "2-0" "2-0" []]
        XDELEX s DELREF 2       -> [1]
        XPENDING s g            -> [0 nil nil aborted]
    "#,
    );
}

#[test]
fn what_a_producer_has_sent_can_be_told() {
    play(
        r#"
        XIDMPRECORD s p 1 1000000-0 -> !ERR no such key
        XADD s * f v            -> "1000000-0"
        XADD s * f v            -> "1000000-1"
        XIDMPRECORD s p 1 1000000-7 -> !ERR No such message in stream
        XIDMPRECORD s p 1 1000000-0 -> OK
        XIDMPRECORD s p 1 1000000-0 -> OK
        XIDMPRECORD s p 1 1000000-1 -> !ERR IID already exists for this producer with a different stream ID
        XIDMPRECORD s p 2 1000000-0 -> !ERR the entry was sent by another producer, or under another name
        XIDMPRECORD s q 1 1000000-0 -> !ERR the entry was sent by another producer, or under another name
        XIDMPRECORD s q 1 1000000-1 -> OK
        XADD s IDMP p 1 * f w   -> "1000000-0"
        XADD s IDMP q 1 * f w   -> "1000000-1"
        XLEN s                  -> 2
        wait 100000
        XADD s IDMP p 1 * f w   -> "1100000-0"
        XIDMPRECORD s q 1 1100000-0 -> !ERR the entry was sent by another producer, or under another name
        XIDMPRECORD s p 1 1100000-0 -> OK
    "#,
    );
}

#[test]
fn what_a_producer_has_sent_is_added_once() {
    play(
        r#"
        XADD no NOMKSTREAM IDMP p 1 * f v -> nil
        XCFGSET s IDMP-DURATION 5 -> !ERR no such key
        XADD s IDMP p 1 * f v   -> "1000000-0"
        XADD s IDMP p 1 * f w   -> "1000000-0"
        XADD s IDMP q 1 * f w   -> "1000000-1"
        XADD s IDMP p 2 * f w   -> "1000000-2"
        XLEN s                  -> 3
        XINFO STREAM s 2        -> {"length"=3 "radix-tree-keys"=1 "radix-tree-nodes"=2 "last-generated-id"="1000000-2" "max-deleted-entry-id"="0-0" "entries-added"=3 "recorded-first-entry-id"="1000000-0" "idmp-duration"=100 "idmp-maxsize"=100 "pids-tracked"=2 "iids-tracked"=3 "iids-added"=3 "iids-duplicates"=1 "groups"=0 "first-entry"=["1000000-0" ["f" "v"]] "last-entry"=["1000000-2" ["f" "w"]]}
        COPY s t                -> 1
        XDEL s 1000000-0        -> 1
        XADD s IDMP p 1 * f v   -> "1000000-0"
        wait 99999
        XADD t IDMP p 2 * f w   -> "1000000-2"
        wait 1
        XADD t IDMP p 2 * f w   -> "1100000-0"
        XINFO STREAM t 2        -> {"length"=4 "radix-tree-keys"=1 "radix-tree-nodes"=2 "last-generated-id"="1100000-0" "max-deleted-entry-id"="0-0" "entries-added"=4 "recorded-first-entry-id"="1000000-0" "idmp-duration"=100 "idmp-maxsize"=100 "pids-tracked"=1 "iids-tracked"=1 "iids-added"=4 "iids-duplicates"=2 "groups"=0 "first-entry"=["1000000-0" ["f" "v"]] "last-entry"=["1100000-0" ["f" "w"]]}
        XCFGSET t IDMP-DURATION 100 -> OK
        XADD t IDMP p 2 * f w   -> "1100000-0"
        XCFGSET t IDMP-MAXSIZE 2 IDMP-DURATION 5 -> OK
        XADD t IDMP p 2 * f w   -> "1100000-1"
        XADD t IDMP p 3 * f w   -> "1100000-2"
        XADD t IDMP p 4 * f w   -> "1100000-3"
        XADD t IDMP p 3 * f w   -> "1100000-2"
        XADD t IDMP p 2 * f w   -> "1100000-4"
        XADD t MAXLEN 1 IDMP p 2 * f w -> "1100000-4"
        XLEN t                  -> 8
        wait 5000
        XADD t IDMP z 0 * f w   -> "1105000-0"
        XINFO STREAM t 2        -> {"length"=9 "radix-tree-keys"=1 "radix-tree-nodes"=2 "last-generated-id"="1105000-0" "max-deleted-entry-id"="0-0" "entries-added"=9 "recorded-first-entry-id"="1000000-0" "idmp-duration"=5 "idmp-maxsize"=2 "pids-tracked"=1 "iids-tracked"=1 "iids-added"=9 "iids-duplicates"=5 "groups"=0 "first-entry"=["1000000-0" ["f" "v"]] "last-entry"=["1105000-0" ["f" "w"]]}
        XTRIM t MAXLEN 0        -> 9
        XADD t IDMP z 0 * f w   -> "1105000-0"
        XLEN t                  -> 0
        wait 5000
        XINFO STREAM t 2        -> {"length"=0 "radix-tree-keys"=0 "radix-tree-nodes"=1 "last-generated-id"="1105000-0" "max-deleted-entry-id"="0-0" "entries-added"=9 "recorded-first-entry-id"="0-0" "idmp-duration"=5 "idmp-maxsize"=2 "pids-tracked"=0 "iids-tracked"=0 "iids-added"=9 "iids-duplicates"=6 "groups"=0 "first-entry"=nil "last-entry"=nil}
    "#,
    );
}

/// Replies of Redis 8.6.3; those without the 2 are of release 1.
#[test]
fn since_level_2_a_lag_is_known_where_all_that_is_missing_is_before_the_first_entry() {
    let mut store = Store::new();
    (1..=5).for_each(|id| store.play(&format!("XADD s {id} f v -> \"{id}-0\"")));
    store.play(
        r#"
        XGROUP CREATE s g 0     -> OK
        XREADGROUP g c COUNT 1 STREAMS s > -> {"s"=[["1-0" ["f" "v"]]]}
        XTRIM s MAXLEN 2        -> 3
        XINFO GROUPS s          -> [{"name"="g" "consumers"=1 "pending"=1 "last-delivered-id"="1-0" "entries-read"=1 "lag"=4}]
        XINFO GROUPS s 2        -> [{"name"="g" "consumers"=1 "pending"=1 "last-delivered-id"="1-0" "entries-read"=1 "lag"=2}]
        XTRIM s MAXLEN 0        -> 2
        XINFO GROUPS s          -> [{"name"="g" "consumers"=1 "pending"=1 "last-delivered-id"="1-0" "entries-read"=1 "lag"=4}]
        XINFO GROUPS s 2        -> [{"name"="g" "consumers"=1 "pending"=1 "last-delivered-id"="1-0" "entries-read"=1 "lag"=0}]
        "#,
    );
}

/// As Redis 8.6.3; what is without the 2 is of release 1.
#[test]
fn since_level_2_a_group_counts_again_where_entries_behind_its_last_one_are_gone() {
    for (form, read) in [("", 2), (" 2", 3)] {
        let mut store = Store::new();
        let second = form.trim();
        store.play(
            r#"
            XADD s 1 f v            -> "1-0"
            XGROUP CREATE s g 0     -> OK
            "#,
        );
        store.play(&format!(r#"XREADGROUP g c{form} STREAMS s > -> {{"s"=[["1-0" ["f" "v"]]]}}"#));
        store.play(
            r#"
            XADD s 2 f v            -> "2-0"
            XADD s 3 f v            -> "3-0"
            XDEL s 2 1              -> 2
            "#,
        );
        store.play(&format!(r#"XREADGROUP g c{form} STREAMS s > -> {{"s"=[["3-0" ["f" "v"]]]}}"#));
        let lag = 3 - read;
        store.play(&format!(
            r#"XINFO GROUPS s {second} -> [{{"name"="g" "consumers"=1 "pending"=2 "last-delivered-id"="3-0" "entries-read"={read} "lag"={lag}}}]"#
        ));
    }
}

#[test]
fn facts_about_streams_are_those_of_redis() {
    play(
        r#"
        XADD s 1-1 f v          -> "1-1"
        XADD s 2-0 g 5          -> "2-0"
        XADD s 3-0 g 6          -> "3-0"
        XINFO STREAM s          -> {"length"=3 "radix-tree-keys"=1 "radix-tree-nodes"=2 "last-generated-id"="3-0" "max-deleted-entry-id"="0-0" "entries-added"=3 "recorded-first-entry-id"="1-1" "groups"=0 "first-entry"=["1-1" ["f" "v"]] "last-entry"=["3-0" ["g" "6"]]}
        XDEL s 2                -> 1
        XGROUP CREATE s g 0     -> OK
        XGROUP CREATE s h $     -> OK
        XREADGROUP g c COUNT 1 STREAMS s > -> {"s"=[["1-1" ["f" "v"]]]}
        wait 3
        XINFO CONSUMERS s g     -> [{"name"="c" "pending"=1 "idle"=3}]
        XINFO GROUPS s          -> [{"name"="g" "consumers"=1 "pending"=1 "last-delivered-id"="1-1" "entries-read"=nil "lag"=nil} {"name"="h" "consumers"=0 "pending"=0 "last-delivered-id"="3-0" "entries-read"=nil "lag"=0}]
        XINFO FULL s 1          -> {"length"=2 "radix-tree-keys"=1 "radix-tree-nodes"=2 "last-generated-id"="3-0" "max-deleted-entry-id"="2-0" "entries-added"=3 "recorded-first-entry-id"="1-1" "entries"=[["1-1" ["f" "v"]]] "groups"=[{"name"="g" "last-delivered-id"="1-1" "entries-read"=nil "lag"=nil "pel-count"=1 "pending"=[["1-1" "c" 1000000 1]] "consumers"=[{"name"="c" "seen-time"=1000000 "pel-count"=1 "pending"=[["1-1" 1000000 1]]}]} {"name"="h" "last-delivered-id"="3-0" "entries-read"=nil "lag"=0 "pel-count"=0 "pending"=[] "consumers"=[]}]}
        XDEL s 1-1 3            -> 2
        XINFO STREAM s          -> {"length"=0 "radix-tree-keys"=0 "radix-tree-nodes"=1 "last-generated-id"="3-0" "max-deleted-entry-id"="3-0" "entries-added"=3 "recorded-first-entry-id"="0-0" "groups"=2 "first-entry"=nil "last-entry"=nil}
        XINFO STREAM no         -> !ERR no such key
        XINFO CONSUMERS s no    -> !NOGROUP No such consumer group \'no\' for key name \'s\'
        XSETID s 2              -> OK
        XSETID s 9              -> OK
        XADD s 10 f v           -> "10-0"
        XSETID s 9              -> !ERR The ID specified in XSETID is smaller than the target stream top item
        XSETID s 12 0 5         -> !ERR The entries_added specified in XSETID is smaller than the target stream length
        XSETID s 12 7 11        -> OK
        XINFO STREAM s          -> {"length"=1 "radix-tree-keys"=1 "radix-tree-nodes"=2 "last-generated-id"="12-0" "max-deleted-entry-id"="11-0" "entries-added"=7 "recorded-first-entry-id"="10-0" "groups"=2 "first-entry"=["10-0" ["f" "v"]] "last-entry"=["10-0" ["f" "v"]]}
        XSETID no 1             -> !ERR no such key
    "#,
    );
}

#[test]
fn commands_on_streams_refuse_other_types_and_the_reverse() {
    let mut store = Store::new();
    store.play("XADD s 1 f v -> \"1-0\"\nSET t v -> OK\nXGROUP CREATE s g 0 -> OK");
    for line in [
        "XADD t * f v",
        "XLEN t",
        "XRANGE t - +",
        "XREAD STREAMS s t 0 0",
        "XREADGROUP g a STREAMS s t > >",
        "XDEL t 1",
        "XTRIM t MAXLEN 0",
        "XGROUP CREATE t g 0",
        "XINFO STREAM t",
        "XPENDING t g",
        "XCLAIM t g a 0 1",
        "XDELEX t KEEPREF 1",
        "XACKDEL t g KEEPREF 1",
        "XNACK t g FAIL 1",
        "XADD t IDMP p 1 * f v",
        "XCFGSET t IDMP-DURATION 1",
        "XIDMPRECORD t p n 1-1",
        "XREADGROUP g a 2 STREAMS s t > >",
        "GET s",
        "LPUSH s a",
        "APPEND s x",
        "ZADD s 1 a",
    ] {
        store.play(&format!("{line} -> {WRONGTYPE}"));
    }
    store.play("XPENDING s g -> [0 nil nil aborted]\nXREADGROUP g a STREAMS s $ -> !ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.");
    store.play("XREADGROUP g a STREAMS s s > > -> {\"s\"=[[\"1-0\" [\"f\" \"v\"]]]}");
}

/// A store with a stream of this many entries under `s`, read by a group.
fn with_large_stream(entries: usize) -> Store {
    let mut store = Store::new();
    for id in 1..=entries {
        store.play(&format!("XADD s {id} field {id} -> \"{id}-0\""));
    }
    store.play("XGROUP CREATE s g 0 -> OK");
    let mut scratch = Vec::new();
    let streams = List::build(&mut scratch, [&b"s"[..], b">"]);
    let (group, consumer) = (&b"g"[..], &b"c"[..]);
    let read = StreamCommand::ReadGroup { group, consumer, streams, count: 0, acknowledges: false };
    store.apply(&Command::OnStream(read));
    store
}

#[test]
fn commands_on_keys_work_on_streams() {
    let mut store = with_large_stream(500);
    store.play(
        r#"
        COPY s copy             -> 1
        XTRIM s MAXLEN 1        -> 499
        XGROUP DESTROY s g      -> 1
        XLEN copy               -> 500
        XPENDING copy g         -> [500 "1-0" "500-0" [["c" "500"]]]
        XRANGE copy 77 77       -> [["77-0" ["field" "77"]]]
        XRANGE s - +            -> [["500-0" ["field" "500"]]]
        EXPIRE copy PX 1000     -> 1
        RENAME copy renamed     -> OK
        XADD renamed 501 f v    -> "501-0"
        PTTL renamed            -> 1000
        wait 1000
        EXISTS renamed          -> 0
        DEL s renamed           -> 1
    "#,
    );
    assert_eq!(store.table.entry_bytes, 0);
    while store.table.tidy(100) {}
}

#[test]
fn a_snapshot_has_a_stream_as_it_was_when_the_snapshot_began() {
    for changes in
        ["XTRIM s MAXLEN 3 -> 297", "DEL s -> 1", "XADD s 999 f v -> \"999-0\"", "XGROUP DESTROY s g -> 1"]
    {
        let mut store = with_large_stream(300);
        store.play(
            r#"
            XADD small 1 f v        -> "1-0"
            XGROUP CREATE small g 0 -> OK
            XREADGROUP g a 2 STREAMS small > -> {"small"=[["1-0" ["f" "v"]]]}
            XREADGROUP g b 2 STREAMS small > -> aborted
            XNACK small g FAIL 1    -> 1
            XADD small IDMP p 1 * f v -> "1000000-0"
            "#,
        );
        let (digest, floor) = (store.table.digest(), store.table.version_floor());
        let id = store.table.begin_snapshot();
        let (mut copy, mut chunks) = (Table::new(7), 0);
        loop {
            let mut chunk = Vec::new();
            let more = store.table.snapshot_chunk(id, 100, &mut chunk);
            copy.install(&chunk).unwrap();
            chunks += 1;
            if !more {
                break;
            }
            if chunks == 20 {
                store.play(changes);
            }
        }
        copy.set_version_floor(floor);
        assert_eq!(copy.digest(), digest, "{changes}");
        let mut copy = Store { table: copy, ..Store::new() };
        copy.play("XADD small IDMP p 1 * f v -> \"1000000-0\"\nXLEN small -> 2");
        assert!(chunks > 50);
        store.table.end_snapshot(id);
    }
}

#[test]
fn invalid_streams_are_refused() {
    let mut store = Store::new();
    store.play("XADD s 1 f v g w -> \"1-0\"\nXADD s 2 f v g w -> \"2-0\"\nXGROUP CREATE s g 0 -> OK");
    store.play("XREADGROUP g c COUNT 1 STREAMS s > -> {\"s\"=[[\"1-0\" [\"f\" \"v\" \"g\" \"w\"]]]}");
    let id = store.table.begin_snapshot();
    let mut chunk = Vec::new();
    store.table.snapshot_chunk(id, 10_000, &mut chunk);
    assert_eq!(Table::new(2).install(&chunk), Ok(1));
    for at in 0..chunk.len() {
        for change in [1, 0x80, 0xff] {
            let mut changed = chunk.clone();
            changed[at] ^= change;
            let mut copy = Store { table: Table::new(2), ..Store::new() };
            if copy.table.install(&changed).is_err() {
                continue;
            }
            // An item that was accepted can be read and changed.
            let mut scratch = Vec::new();
            let streams = List::build(&mut scratch, [&b"s"[..], b"0"]);
            let (group, consumer) = (&b"g"[..], &b"c"[..]);
            let read = StreamCommand::ReadGroup { group, consumer, streams, count: 0, acknowledges: false };
            copy.apply(&Command::OnStream(read));
            for command in [
                StreamCommand::InfoFull { key: b"s", count: 0 },
                StreamCommand::Info { key: b"s" },
                StreamCommand::Pending { key: b"s", group },
                StreamCommand::InfoConsumers { key: b"s", group },
            ] {
                copy.read(&Command::OnStream(command));
            }
            for command in [
                StreamCommand::DeleteConsumer { key: b"s", group, consumer },
                StreamCommand::DestroyGroup { key: b"s", group },
            ] {
                copy.apply(&Command::OnStream(command));
            }
        }
    }
}

#[test]
fn one_command_delivers_a_bounded_number_of_entries() {
    let mut store = Store::new();
    let mut scratch = Vec::new();
    for key in [b"s", b"t"] {
        for _ in 0..DELIVERED_MAX - 10 {
            let words = List::build(&mut scratch, [&b"*"[..], b"", b"f", b"v"]);
            let add = StreamCommand::Add { key, words, trim: None, if_present: false };
            store.apply(&Command::OnStream(add));
        }
    }
    store.play("XGROUP CREATE s g 0 -> OK\nXGROUP CREATE t g 0 -> OK\nXADD u 1 f v -> \"1-0\"");
    store.play("XGROUP CREATE u g 0 -> OK");
    let streams = List::build(&mut scratch, [&b"s"[..], b">", b"t", b">", b"u", b">"]);
    let (group, consumer) = (&b"g"[..], &b"c"[..]);
    let read = StreamCommand::ReadGroup { group, consumer, streams, count: 0, acknowledges: false };
    let answer = store.apply(&Command::OnStream(read));
    assert_eq!(answer.matches("\"f\"").count(), DELIVERED_MAX);
    let left = DELIVERED_MAX - 20;
    store.play(&format!("XINFO GROUPS t -> [{{\"name\"=\"g\" \"consumers\"=1 \"pending\"=10 \"last-delivered-id\"=\"1000000-9\" \"entries-read\"=10 \"lag\"={left}}}]"));
    store.play("XPENDING u g -> [0 nil nil aborted]");
    let claim = store.read(&Command::OnStream(StreamCommand::Pending { key: b"s", group }));
    assert!(claim.starts_with(&format!("[{} ", DELIVERED_MAX - 10)), "{claim}");
}

#[test]
fn a_script_that_is_undone_leaves_streams_as_they_were() {
    let mut store = with_large_stream(300);
    let bytes = store.table.entry_bytes;
    let answer =
        |store: &mut Store| store.read(&Command::OnStream(StreamCommand::InfoFull { key: b"s", count: 0 }));
    let before = answer(&mut store);
    store.table.set_interpreter(&super::scripts::Lines);
    let limits = ScriptLimits { value_bytes_max: 100, cost_max: 1000 };
    let text = b"XADD s * f v\nXTRIM s MAXLEN 5\nXACK s g 7\nXGROUP DESTROY s g\nXADD s * g v\nundo";
    let mut scratch = Vec::new();
    let script = Script::build(&mut scratch, text, [&b"s"[..]], 1, limits, true).unwrap();
    store.apply(&Command::Script(script));
    assert_eq!(answer(&mut store), before);
    assert_eq!(store.table.entry_bytes, bytes);
}

#[test]
fn a_transaction_adds_several_entries_in_one_millisecond() {
    let mut store = Store::new();
    let (mut draft, mut scratch) = (Draft::default(), Vec::new());
    let words = List::build(&mut scratch, [&b"*"[..], b"", b"f", b"v"]);
    let add = StreamCommand::Add { key: b"s", words, trim: None, if_present: false };
    (0..3).for_each(|_| assert!(draft.push(&Command::OnStream(add))));
    let answer = store.apply(&Command::Transaction(draft.transaction()));
    assert_eq!(answer, "[\"1000000-0\" \"1000000-1\" \"1000000-2\"]");
}

#[test]
fn lists_of_names_are_kept_once_until_there_are_too_many() {
    let mut store = Store::new();
    for id in 1..=40 {
        store.play(&format!("XADD s {id} name{} v a{} 7 -> \"{id}-0\"", id % 20, id % 20));
    }
    for id in 1..=40 {
        store.play(&format!(
            "XRANGE s {id} {id} -> [[\"{id}-0\" [\"name{0}\" \"v\" \"a{0}\" \"7\"]]]",
            id % 20
        ));
    }
    store.play(
        "XTRIM s MAXLEN 0 -> 40\nXADD s 41 f v -> \"41-0\"\nXRANGE s - + -> [[\"41-0\" [\"f\" \"v\"]]]",
    );
    let (items, _) = store.table.items_of(b"s", Kind::Stream, 1).unwrap();
    assert_eq!(items.len(), 3, "a head, one list of names, an entry");
}

/// A stream, in the simplest form.
#[derive(Clone, Debug, Default)]
struct Model {
    entries: BTreeMap<StreamId, String>,
    last: StreamId,
    groups: BTreeMap<String, ModelGroup>,
}

#[derive(Clone, Debug, Default)]
struct ModelGroup {
    last: StreamId,
    /// By id: the consumer, the delivery time and the number of deliveries.
    pending: BTreeMap<StreamId, (String, u64, u64)>,
}

fn at(ms: u64) -> StreamId {
    StreamId { ms, seq: 0 }
}

/// Carries out a line on the model; returns the number of things that it changed.
fn carry_out(model: &mut Model, line: &[String], now: u64) -> usize {
    let words: Vec<&str> = line.iter().map(String::as_str).collect();
    let id = |text: &str| at(text.parse().unwrap());
    match words[..] {
        ["XADD", _, ms, name, value] => {
            let wanted = id(ms);
            if wanted <= model.last {
                return 0;
            }
            model.last = wanted;
            model.entries.insert(wanted, format!("[\"{wanted}\" [\"{name}\" \"{value}\"]]"));
            1
        }
        ["XDEL", _, ms] => usize::from(model.entries.remove(&id(ms)).is_some()),
        ["XTRIM", _, "MAXLEN", most] => {
            let gone = model.entries.len().saturating_sub(most.parse().unwrap());
            (0..gone).for_each(|_| drop(model.entries.pop_first()));
            gone
        }
        ["XTRIM", _, "MINID", ms] => {
            let before = model.entries.len();
            model.entries.retain(|held, _| *held >= id(ms));
            before - model.entries.len()
        }
        ["XREADGROUP", group, consumer, "COUNT", count, "STREAMS", _, from] => {
            let Some(group) = model.groups.get_mut(group) else { return 0 };
            let count: usize = count.parse().unwrap();
            if from == ">" {
                let ids: Vec<StreamId> =
                    model.entries.keys().filter(|id| **id > group.last).take(count).copied().collect();
                for id in &ids {
                    group.last = *id;
                    group.pending.insert(*id, (consumer.to_owned(), now, 1));
                }
                return ids.len();
            }
            let after = id(from);
            let owned = group.pending.iter_mut().filter(|(id, held)| **id > after && held.0 == consumer);
            owned
                .take(count)
                .filter(|(id, _)| model.entries.contains_key(id))
                .map(|(_, held)| (held.1, held.2) = (now, held.2 + 1))
                .count()
        }
        ["XACK", _, group, ms] => {
            let group = model.groups.get_mut(group);
            usize::from(group.is_some_and(|group| group.pending.remove(&id(ms)).is_some()))
        }
        ["XCLAIM", _, group, consumer, min_idle, ms] => {
            let Some(group) = model.groups.get_mut(group) else { return 0 };
            let min_idle: u64 = min_idle.parse().unwrap();
            if !model.entries.contains_key(&id(ms)) {
                group.pending.remove(&id(ms));
                return 0;
            }
            match group.pending.get_mut(&id(ms)) {
                Some(held) if now - held.1 >= min_idle => {
                    *held = (consumer.to_owned(), now, held.2 + 1);
                    1
                }
                _ => 0,
            }
        }
        ["XGROUP", "CREATE", _, group, ms, "MKSTREAM"] => {
            model.groups.entry(group.to_owned()).or_insert(ModelGroup { last: id(ms), ..Default::default() });
            1
        }
        ["XGROUP", "DESTROY", _, group] => usize::from(model.groups.remove(group).is_some()),
        ["XGROUP", "DELCONSUMER", _, group, consumer] => {
            let Some(group) = model.groups.get_mut(group) else { return 0 };
            let before = group.pending.len();
            group.pending.retain(|_, held| held.0 != consumer);
            before - group.pending.len()
        }
        _ => panic!("{words:?}"),
    }
}

/// A line about one stream, as words.
fn line() -> impl Strategy<Value = Vec<String>> {
    let number = |most: u64| (0..most).prop_map(|number| number.to_string());
    let parts = (0..16_u8, number(3), number(4), number(90), number(12), number(70_000));
    parts.prop_map(|(which, group, consumer, id, count, value)| {
        let (group, consumer) = (format!("g{group}"), format!("c{consumer}"));
        let line = match which {
            0..7 => format!("XADD s {} f{} {value}", 1 + id.parse::<u64>().unwrap(), count.len()),
            7 => format!("XDEL s {id}"),
            8 if count.len() > 1 => format!("XTRIM s MAXLEN {count}"),
            8 => format!("XTRIM s MINID {count}"),
            9 | 10 => format!("XREADGROUP {group} {consumer} COUNT {} STREAMS s >", 1 + count.len() * 3),
            11 => format!("XREADGROUP {group} {consumer} COUNT {} STREAMS s {count}", 1 + count.len() * 3),
            12 => format!("XACK s {group} {id}"),
            13 => format!("XCLAIM s {group} {consumer} {count} {id}"),
            14 => format!("XGROUP CREATE s {group} {count} MKSTREAM"),
            _ if id.len() == 1 => format!("XGROUP DESTROY s {group}"),
            _ => format!("XGROUP DELCONSUMER s {group} {consumer}"),
        };
        line.split(' ').map(str::to_owned).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn streams_match_a_simple_model(lines in vec(line(), 0..150)) {
        let (mut store, mut model) = (Store::new(), Model::default());
        for line in &lines {
            store.time += 2;
            let words: Vec<&[u8]> = line.iter().map(|word| word.as_bytes()).collect();
            let mut scratch = Vec::new();
            let reply = store.apply(&super::script::parse(&words, &mut scratch));
            let count = carry_out(&mut model, line, store.time);
            let counts = ["XDEL", "XTRIM", "XACK"].contains(&line[0].as_str());
            prop_assert!(!counts || reply == count.to_string(), "{:?}: {}", line, reply);
            let entries: Vec<&str> = model.entries.values().map(String::as_str).collect();
            let expected = format!("[{}]", entries.join(" "));
            let mut scratch = Vec::new();
            let answer = store.read(&super::script::parse(&[b"XRANGE", b"s", b"-", b"+"], &mut scratch));
            prop_assert_eq!(answer, expected, "after {:?}", line);
            for (name, group) in &model.groups {
                let mut scratch = Vec::new();
                let words: [&[u8]; 7] = [b"XPENDING", b"s", name.as_bytes(), b"0", b"-", b"+", b"999"];
                let answer = store.read(&super::script::parse(&words, &mut scratch));
                let pending: Vec<String> = group.pending.iter().map(|(id, (consumer, since, deliveries))| {
                    format!("[\"{id}\" \"{consumer}\" {} {deliveries}]", store.time - since)
                }).collect();
                prop_assert_eq!(answer, format!("[{}]", pending.join(" ")), "{} after {:?}", name, line);
            }
            for entry in store.table.index.iter() {
                entry.collection().inspect(|collection| collection.check_invariants());
            }
            store.table.check_invariants();
        }
        // The encoded items of one replica are accepted by another one.
        let id = store.table.begin_snapshot();
        let mut copy = Table::new(3);
        loop {
            let mut chunk = Vec::new();
            let more = store.table.snapshot_chunk(id, 100, &mut chunk);
            copy.install(&chunk).unwrap();
            if !more {
                break;
            }
        }
        copy.set_version_floor(store.table.version_floor());
        prop_assert_eq!(copy.digest(), store.table.digest());
    }
}

#[test]
fn deleting_a_consumer_counts_its_pending_entries_as_walked() {
    let mut store = Store::new();
    store.play(
        "
        XADD s 1 a b -> \"1-0\"
        XADD s 2 a b -> \"2-0\"
        XADD s 3 a b -> \"3-0\"
        XGROUP CREATE s g 0 -> OK
        XGROUP CREATECONSUMER s g idle -> 1
        ",
    );
    let mut scratch = Vec::new();
    let streams = List::build(&mut scratch, [&b"s"[..], b">"]);
    let read =
        StreamCommand::ReadGroup { group: b"g", consumer: b"busy", streams, count: 2, acknowledges: false };
    store.apply(&Command::OnStream(read));
    let delete_ns = |consumer: &[u8]| {
        let delete = StreamCommand::DeleteConsumer { key: b"s", group: b"g", consumer };
        Command::OnStream(delete).walk_ns(&store.table)
    };
    assert_eq!([b"idle", b"busy", b"none"].map(|consumer| delete_ns(consumer)), [0, 2 * 280, 0]);
}
