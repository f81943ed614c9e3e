//! Runs the bodies of the fuzz targets on random bytes, and on bytes that are nearly valid.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::bodies;

/// Pieces of requests: joined, they are often whole requests, and often only nearly.
fn request_fragment() -> impl Strategy<Value = Vec<u8>> {
    let tokens: Vec<&[u8]> = vec![
        b"*1\r\n$4\r\nPING\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n",
        b"PING\r\n",
        b"SET k \"a\\x20b\"\r\n",
        b"'",
        b"\"",
        b"\\",
        b"*",
        b"*2\r\n",
        b"*-1\r\n",
        b"*11\r\n",
        b"$",
        b"$3\r\nabc\r\n",
        b"$0\r\n\r\n",
        b"$41\r\n",
        b"$-1\r\n",
        b"\r\n",
        b"\r",
        b"\n",
        b"-",
        b"1",
        b"00000000",
        b"9999999999999999999",
        b" ",
    ];
    prop_oneof![
        8 => proptest::sample::select(tokens).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..8),
        1 => (1_usize..45).prop_map(|length| [format!("${length}\r\n").as_bytes(), &vec![b'x'; length], b"\r\n"].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn requests_are_the_same_whole_and_in_pieces(
        head in any::<[u8; 5]>(),
        fragments in vec(request_fragment(), 0..30),
    ) {
        bodies::resp(&[&head[..], &fragments.concat()].concat());
    }

    #[test]
    fn any_bytes_may_arrive_from_a_client(data in vec(any::<u8>(), 0..300)) {
        bodies::resp(&data);
    }

    #[test]
    fn any_bytes_may_arrive_from_a_peer(data in vec(any::<u8>(), 0..300)) {
        bodies::frame(&data);
    }

    #[test]
    fn any_bytes_may_be_read_as_a_record(
        tag in any::<u8>(),
        fields in vec(prop_oneof![
            4 => (0_u8..8).prop_map(|length| [vec![length, 0, 0, 0], vec![b'x'; length as usize]].concat()),
            2 => (0_u8..4).prop_map(|flag| vec![flag]),
            1 => any::<[u8; 8]>().prop_map(|integer| integer.to_vec()),
            1 => vec(any::<u8>(), 0..4),
        ], 0..8),
    ) {
        bodies::record(&[&[tag][..], &fields.concat()].concat());
    }
}
