use super::*;

const ARRAY: &[u8] = b"*5\r\n$3\r\nmug\r\n:-7\r\n$-1\r\n+OK\r\n-ERR no\r\n";

#[test]
fn commands_are_arrays_of_strings() {
    let command = encode(&["HGETALL", "cart:ä"]);

    assert_eq!(
        command,
        "*2\r\n$7\r\nHGETALL\r\n$7\r\ncart:ä\r\n".as_bytes()
    );
}

#[test]
fn replies_of_all_types_are_parsed() {
    let expected = Reply::Array(vec![
        Reply::Text("mug".to_owned()),
        Reply::Integer(-7),
        Reply::Null,
        Reply::Text("OK".to_owned()),
        Reply::Error("ERR no".to_owned()),
    ]);
    let input = [ARRAY, b"+next\r\n"].concat();

    assert_eq!(parse(&input), Ok(Some((expected, ARRAY.len()))));
    assert_eq!(parse(b"*0\r\n"), Ok(Some((Reply::Array(vec![]), 4))));
    let text = Reply::Text("a\r\nb".to_owned());
    assert_eq!(parse(b"$4\r\na\r\nb\r\n"), Ok(Some((text, 10))));
}

#[test]
fn every_prefix_of_a_reply_is_incomplete() {
    for end in 0..ARRAY.len() {
        assert_eq!(parse(&ARRAY[..end]), Ok(None), "{end} bytes");
    }
}

#[test]
fn invalid_replies_are_refused() {
    let endless = [b'+'; LINE_MAX + 3];
    let replies: [&[u8]; 15] = [
        &endless,
        b"\r\n",
        b"?\r\n",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\xc3\xa4\r\n",
        b"+\xff\r\n",
        b":\r\n",
        b":9223372036854775808\r\n",
        b"$-2\r\n",
        b"$4097\r\n",
        b"$99999999999999999999999\r\n",
        b"$1\r\nab\r\n",
        b"$1\r\n\xff\r\n",
        b"*-1\r\n",
        b"*257\r\n",
    ];

    for reply in replies {
        assert!(parse(reply).is_err(), "{}", reply.escape_ascii());
    }
}

#[test]
fn nested_arrays_are_refused_without_recursion() {
    let nested = b"*1\r\n".repeat(10_000);

    assert!(parse(&nested).is_err());
}
