//! Commands that the proxy refuses in the server's place, in chosen words.

/// The commands that are refused, and the words.
#[derive(Debug, Default, Clone)]
pub(crate) struct Denied(Vec<(String, String)>);

/// The requests of one client, of which the last one may be incomplete.
#[derive(Debug, Default)]
pub(crate) struct Requests(Vec<u8>);

impl Denied {
    pub(crate) fn add(&mut self, command: &str, words: &str) {
        self.0.push((command.to_owned(), words.to_owned()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The words for a request, if its first words are refused.
    fn words(&self, request: &[&[u8]]) -> Option<&str> {
        let begins = |command: &str| {
            let mut asked = request.iter();
            command.split(' ').all(|word| {
                let asked = asked.next();
                asked.is_some_and(|asked| asked.eq_ignore_ascii_case(word.as_bytes()))
            })
        };
        let denied = self.0.iter().find(|(command, _)| begins(command));
        denied.map(|(_, words)| words.as_str())
    }
}

impl Requests {
    /// Takes bytes of the client. Returns those for the server: each refused request is replaced by a script that answers with the words,
    /// so that the order of the replies stays.
    pub(crate) fn pass(&mut self, bytes: &[u8], denied: &Denied) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        let mut passed = Vec::new();
        while let Some((request, length)) = first(&self.0) {
            match denied.words(&request) {
                Some(words) => passed.extend(refusing(words)),
                None => passed.extend_from_slice(&self.0[..length]),
            }
            self.0.drain(..length);
        }
        passed
    }
}

/// The words of the first request, and its length in bytes; `None` if it is not complete.
fn first(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let mut at = 0;
    let number = |kind: u8, at: &mut usize| {
        let end = *at
            + bytes
                .get(*at..)?
                .windows(2)
                .position(|end| end == b"\r\n")?;
        assert_eq!(bytes[*at], kind, "a request is an array of strings");
        let digits = std::str::from_utf8(&bytes[*at + 1..end]).expect("digits");
        *at = end + 2;
        Some(digits.parse::<usize>().expect("a number"))
    };
    let count = number(b'*', &mut at)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(b'$', &mut at)?;
        words.push(bytes.get(at..at + length)?);
        at += length + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}

fn refusing(words: &str) -> Vec<u8> {
    assert!(!words.contains([']', '\n']), "{words}");
    let script = format!("return {{err = [[{words}]]}}");
    let length = script.len();
    format!("*3\r\n$4\r\nEVAL\r\n${length}\r\n{script}\r\n$1\r\n0\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_request_is_replaced_wherever_the_bytes_are_split() {
        let mut denied = Denied::default();
        denied.add("CLIENT TRACKING", "ERR not here");
        let ping = b"*1\r\n$4\r\nPING\r\n";
        let other = b"*2\r\n$6\r\nclient\r\n$2\r\nID\r\n";
        let tracking = b"*3\r\n$6\r\nclient\r\n$8\r\ntracking\r\n$2\r\nON\r\n";
        let all = [&ping[..], other, tracking, ping].concat();
        let expected = [&ping[..], other, &refusing("ERR not here"), ping].concat();
        for split in 0..=all.len() {
            let mut requests = Requests::default();
            let mut passed = requests.pass(&all[..split], &denied);
            passed.extend(requests.pass(&all[split..], &denied));
            assert_eq!(passed, expected, "{split}");
        }
    }
}
