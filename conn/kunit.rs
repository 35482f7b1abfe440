// SPDX-License-Identifier: GPL-2.0

//! The unit tests of connections.

#![deny(unsafe_code)]

#[kernel::macros::kunit_tests(smc_lo_conn)]
mod tests {
    use super::super::*;
    use crate::{
        bufpool::{
            size::Class,
            Limits, //
        },
        clc::eid::Eid,
        dmb::Device,
        kapi::{
            fixture::{
                with_dest,
                with_source,
                TestSocket, //
            },
            msg,
            sock::Shutdown, //
        },
        lgr, //
    };
    use kernel::{
        sync::Completion,
        workqueue, //
    };

    const LIMITS: Limits = Limits {
        idle_bytes: 1 << 20,
        user_rings: usize::MAX,
    };
    const DONTWAIT: msg::Flags = msg::Flags::DONTWAIT;

    /// A connection with a socket at each end.
    ///
    /// The fields drop in this order: ends, sockets, rings.
    struct Fixture {
        client: Endpoint,
        server: Endpoint,
        a: TestSocket,
        b: TestSocket,
        groups: lgr::Registration,
    }

    impl Fixture {
        /// Both ends belong to their sockets.
        fn new() -> Result<Self> {
            let fixture = Self::unaccepted()?;
            fixture.server.attach(fixture.b.sk_ref());
            Ok(fixture)
        }

        /// The server's end belongs to nobody yet.
        fn unaccepted() -> Result<Self> {
            let device = Arc::pin_init(Device::new(64), GFP_KERNEL)?;
            let groups = lgr::Registration::new(lgr::Groups::new(device, LIMITS)?)?;
            let (client, server) = Endpoint::pair(groups.get(1, 1, &Eid::DEFAULT)?, User::ROOT)?;
            let fixture = Self {
                client,
                server,
                a: TestSocket::new()?,
                b: TestSocket::new()?,
                groups,
            };
            fixture.client.attach(fixture.a.sk_ref());
            Ok(fixture)
        }

        fn a_sends(&self, data: &[u8]) -> Result<usize> {
            send(&self.client, &self.a, data)
        }

        fn b_sends(&self, data: &[u8]) -> Result<usize> {
            send(&self.server, &self.b, data)
        }

        fn a_receives(&self, data: &mut [u8]) -> Result<usize> {
            recv(&self.client, &self.a, data, DONTWAIT)
        }

        fn b_receives(&self, data: &mut [u8]) -> Result<usize> {
            recv(&self.server, &self.b, data, DONTWAIT)
        }

        fn polls(&self, side: Side) -> u32 {
            match side {
                Side::Client => self.client.poll_mask(self.a.sk()),
                Side::Server => self.server.poll_mask(self.b.sk()),
            }
        }

        fn dmbs_in_use(&self) -> Result<usize> {
            let shared = self.groups.shared();
            Ok(usize::try_from(shared.device().dmbs())? - shared.idle_rings())
        }
    }

    const WAIT: msg::Flags = msg::Flags(0);

    /// Runs `work` in a task of its own; the completion says when it has ended.
    fn spawn(work: impl FnOnce() + Send + 'static) -> Result<Arc<Completion>> {
        let end = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let signal = end.clone();
        workqueue::system_unbound().try_spawn(GFP_KERNEL, move || {
            work();
            signal.complete_all();
        })?;
        Ok(end)
    }

    fn send(end: &Endpoint, socket: &TestSocket, data: &[u8]) -> Result<usize> {
        with_source(data, |from| end.send(socket.sk(), from, DONTWAIT))
    }

    fn recv(
        end: &Endpoint,
        socket: &TestSocket,
        data: &mut [u8],
        flags: msg::Flags,
    ) -> Result<usize> {
        let len = data.len();
        with_dest(data, |to| end.recv(socket.sk(), to, len, flags))
    }

    /// A call that does not wait and has this flag, too.
    fn with(flag: msg::Flags) -> msg::Flags {
        msg::Flags(DONTWAIT.0 | flag.0)
    }

    /// `len` bytes of a stream that begins with byte `at` of an endless pattern.
    fn pattern(at: usize, len: usize) -> Result<KVVec<u8>> {
        let mut bytes = KVVec::with_capacity(len, GFP_KERNEL)?;
        for place in at..at + len {
            let [low, mid, high, ..] = place.wrapping_mul(2_654_435_761).to_le_bytes();
            bytes.push(low ^ mid ^ high, GFP_KERNEL)?;
        }
        Ok(bytes)
    }

    #[test]
    fn bytes_arrive_at_every_offset_of_the_ring() -> Result {
        const LEN: usize = 5;
        let fixture = Fixture::new()?;
        // Five has no divisor in common with the size: each offset is met once.
        for round in 0..Class::FIRST.size() {
            let sent = pattern(round, LEN)?;
            assert_eq!(fixture.a_sends(&sent)?, LEN);
            let mut got = [0; 2 * LEN];
            assert_eq!(fixture.b_receives(&mut got)?, LEN);
            assert_eq!(got.get(..LEN), Some(&sent[..]));
        }
        assert_eq!(fixture.b_receives(&mut [0]), Err(EAGAIN));
        Ok(())
    }

    #[test]
    fn both_ends_write_two_megabytes_before_either_reads() -> Result {
        const LEN: usize = 2 << 20;
        let fixture = Fixture::new()?;
        let to_b = pattern(1, LEN)?;
        let to_a = pattern(2, LEN)?;
        assert_eq!(fixture.a_sends(&to_b)?, LEN);
        assert_eq!(fixture.b_sends(&to_a)?, LEN);
        assert!(fixture.client.info().tx.size > Class::FIRST.size());
        assert_eq!(fixture.server.readable(fixture.b.sk()), LEN);
        let mut got = KVVec::from_elem(0, LEN, GFP_KERNEL)?;
        assert_eq!(fixture.b_receives(&mut got)?, LEN);
        assert!(got[..] == to_b[..]);
        assert_eq!(fixture.a_receives(&mut got)?, LEN);
        assert!(got[..] == to_a[..]);
        // What was needed for so much is gone, and the stream goes on.
        assert_eq!(fixture.dmbs_in_use()?, 0);
        assert_eq!(fixture.a_sends(b"x")?, 1);
        assert_eq!(fixture.b_receives(&mut got)?, 1);
        assert_eq!(fixture.server.info().rx.size, Class::FIRST.size());
        Ok(())
    }

    #[test]
    fn a_stream_survives_any_sizes_of_reads_and_writes() -> Result {
        let fixture = Fixture::new()?;
        let (mut written, mut read) = (0, 0);
        let mut size = 1;
        while read < 4 << 20 {
            size = (size * 7 + 3) % 50_000;
            let sent = fixture.a_sends(&pattern(written, size)?)?;
            assert_eq!(sent, size);
            written += sent;
            let mut got = KVVec::from_elem(0, (size * 5) % 60_000, GFP_KERNEL)?;
            match fixture.b_receives(&mut got) {
                Ok(len) => {
                    assert!(got.get(..len) == Some(&pattern(read, len)?[..]));
                    read += len;
                }
                Err(err) => assert_eq!(err, EAGAIN),
            }
        }
        Ok(())
    }

    #[test]
    fn the_chain_ends_at_the_limit_and_room_is_reported() -> Result {
        let fixture = Fixture::new()?;
        let data = KVVec::from_elem(0_u8, 1 << 20, GFP_KERNEL)?;
        let mut sent = 0;
        let err = loop {
            match fixture.a_sends(&data) {
                Ok(len) => sent += len,
                Err(err) => break err,
            }
        };
        assert_eq!(err, EAGAIN);
        let limit = fixture.a.sk().tcp_wmem_max() + fixture.b.sk().tcp_rmem_default();
        assert!(sent <= limit);
        assert!(sent >= limit / 2);
        assert_eq!(fixture.polls(Side::Client) & close::event::OUT, 0);
        let mut got = KVVec::from_elem(0_u8, sent, GFP_KERNEL)?;
        assert_eq!(fixture.b_receives(&mut got)?, sent);
        assert!(fixture.polls(Side::Client) & close::event::OUT != 0);
        // A reader that reads gets more at once.
        let first = sent;
        sent = 0;
        while let Ok(len) = fixture.a_sends(&data) {
            sent += len;
        }
        assert!(sent > first);
        Ok(())
    }

    #[test]
    fn peeking_leaves_the_stream_as_it_is() -> Result {
        const LEN: usize = 100_000;
        let fixture = Fixture::new()?;
        let sent = pattern(0, LEN)?;
        fixture.a_sends(&sent)?;
        for _ in 0..2 {
            let mut got = KVVec::from_elem(0, LEN + 1, GFP_KERNEL)?;
            let flags = with(msg::Flags::PEEK);
            assert_eq!(recv(&fixture.server, &fixture.b, &mut got, flags)?, LEN);
            assert!(got.get(..LEN) == Some(&sent[..]));
        }
        // Bytes can be dropped uncopied.
        let flags = with(msg::Flags::TRUNC);
        let mut got = [0; 10];
        assert_eq!(recv(&fixture.server, &fixture.b, &mut got, flags)?, 10);
        assert_eq!(got, [0; 10]);
        assert_eq!(fixture.b_receives(&mut got)?, 10);
        assert_eq!(Some(&got[..]), sent.get(10..20));
        Ok(())
    }

    #[test]
    fn the_end_comes_with_the_last_byte() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"last")?;
        assert_eq!(fixture.client.close(false), Closed::Clean);
        assert!(fixture.server.explains_fin());
        assert!(fixture.server.peer_closed());
        let mut got = [0; 8];
        assert_eq!(fixture.b_receives(&mut got)?, 4);
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        Ok(())
    }

    #[test]
    fn one_more_send_goes_to_an_end_that_closed() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"x")?;
        assert_eq!(fixture.b_receives(&mut [0; 1])?, 1);
        assert_eq!(fixture.server.close(false), Closed::Clean);
        assert_eq!(fixture.a_sends(b"nobody reads this")?, 17);
        assert_eq!(fixture.a_sends(b"nor this"), Err(EPIPE));
        assert_eq!(fixture.a_sends(b"nor this"), Err(EPIPE));
        // The peer had finished: its end of stream hides the error.
        assert_eq!(fixture.a_receives(&mut [0; 1])?, 0);
        assert_eq!(fixture.dmbs_in_use()?, 0);
        Ok(())
    }

    #[test]
    fn unread_data_at_close_is_a_reset() -> Result {
        let fixture = Fixture::new()?;
        fixture.b_sends(b"still to be read")?;
        fixture.a_sends(b"unread")?;
        assert_eq!(fixture.server.close(false), Closed::Reset);
        assert!(fixture.client.explains_rst());
        let all = close::event::IN | close::event::HUP | close::event::ERR;
        assert_eq!(fixture.polls(Side::Client) & all, all);
        // What has arrived is readable, then the error once, then the end.
        let mut got = [0; 32];
        assert_eq!(fixture.a_receives(&mut got)?, 16);
        assert_eq!(fixture.a_receives(&mut got), Err(ECONNRESET));
        assert_eq!(fixture.a_receives(&mut got)?, 0);
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        Ok(())
    }

    #[test]
    fn linger_zero_and_a_dropped_end_are_resets() -> Result {
        let fixture = Fixture::new()?;
        assert_eq!(fixture.server.close(true), Closed::Reset);
        assert_eq!(fixture.a_sends(b"x"), Err(ECONNRESET));
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));

        let Fixture {
            client, server, a, ..
        } = Fixture::new()?;
        drop(server);
        assert_eq!(send(&client, &a, b"x"), Err(ECONNRESET));
        Ok(())
    }

    #[test]
    fn death_is_reported_once_at_each_end() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"before")?;
        fixture.client.abort(ETIMEDOUT);
        fixture.server.abort(ECONNRESET);
        assert_eq!(fixture.a_sends(b"x"), Err(ETIMEDOUT));
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        let mut got = [0; 8];
        assert_eq!(fixture.b_receives(&mut got)?, 6);
        assert_eq!(fixture.b_receives(&mut got), Err(ECONNRESET));
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        Ok(())
    }

    #[test]
    fn shutdown_ends_one_direction() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"x")?;
        fixture.client.shutdown(fixture.a.sk(), Shutdown::SEND);
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        let mut got = [0; 8];
        assert_eq!(fixture.b_receives(&mut got)?, 1);
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        assert_eq!(fixture.b_sends(b"back")?, 4);
        assert_eq!(fixture.a_receives(&mut got)?, 4);
        Ok(())
    }

    #[test]
    fn nobody_is_reset_when_both_ends_had_finished() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"unread")?;
        fixture.b_sends(b"read")?;
        fixture.client.shutdown(fixture.a.sk(), Shutdown::SEND);
        fixture.server.shutdown(fixture.b.sk(), Shutdown::SEND);
        assert_eq!(fixture.server.close(true), Closed::Clean);
        assert_eq!(fixture.polls(Side::Client) & close::event::ERR, 0);
        let mut got = [0; 8];
        assert_eq!(fixture.a_receives(&mut got)?, 4);
        assert_eq!(fixture.a_receives(&mut got)?, 0);
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        Ok(())
    }

    #[test]
    fn sending_to_an_end_that_shut_down_both_directions_resets_both() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"kept")?;
        fixture.server.shutdown(fixture.b.sk(), Shutdown::RCV);
        assert_eq!(fixture.a_sends(b"too")?, 3);
        fixture.server.shutdown(fixture.b.sk(), Shutdown::SEND);
        assert_eq!(fixture.a_sends(b"dropped")?, 7);
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        assert!(fixture.server.is_dead());
        assert_eq!(fixture.b_sends(b"x"), Err(ECONNRESET));
        let mut got = [0; 16];
        assert_eq!(fixture.b_receives(&mut got)?, 7);
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        Ok(())
    }

    #[test]
    fn data_waits_for_whoever_accepts() -> Result {
        const LEN: usize = 200_000;
        let fixture = Fixture::unaccepted()?;
        let sent = pattern(3, LEN)?;
        assert_eq!(fixture.a_sends(&sent)?, LEN);
        let paid = fixture.client.info().charged;
        assert!(paid >= LEN);
        // Who accepts pays from now on.
        fixture.server.attach(fixture.b.sk_ref());
        assert_eq!(fixture.client.info().charged, 0);
        assert_eq!(fixture.server.info().charged, paid);
        let mut got = KVVec::from_elem(0, LEN, GFP_KERNEL)?;
        assert_eq!(fixture.b_receives(&mut got)?, LEN);
        assert!(got[..] == sent[..]);
        fixture.server.close(false);
        fixture.client.close(false);
        assert_eq!(fixture.server.info().charged, 0);
        Ok(())
    }

    #[test]
    fn a_reset_before_accept_is_seen_after_it() -> Result {
        let fixture = Fixture::unaccepted()?;
        fixture.a_sends(b"x")?;
        fixture.client.close(true);
        fixture.server.attach(fixture.b.sk_ref());
        let mut got = [0; 8];
        assert_eq!(fixture.b_receives(&mut got)?, 1);
        assert_eq!(fixture.b_receives(&mut got), Err(ECONNRESET));
        Ok(())
    }

    #[test]
    fn memory_is_given_back_whoever_closes_first() -> Result {
        for first in [Side::Client, Side::Server] {
            for unread in [0, 100_000] {
                let fixture = Fixture::new()?;
                fixture.a_sends(&pattern(0, 300_000)?)?;
                let mut got = KVVec::from_elem(0, 300_000 - unread, GFP_KERNEL)?;
                fixture.b_receives(&mut got)?;
                let ends = match first {
                    Side::Client => [&fixture.client, &fixture.server],
                    Side::Server => [&fixture.server, &fixture.client],
                };
                for end in ends {
                    end.close(false);
                }
                assert_eq!(fixture.dmbs_in_use()?, 0);
                assert_eq!(fixture.client.info().charged, 0);
                assert_eq!(fixture.server.info().charged, 0);
            }
        }
        Ok(())
    }

    #[test]
    fn two_tasks_wait_for_each_other() -> Result {
        const LEN: usize = 8 << 20;
        let fixture = Arc::new(Fixture::new()?, GFP_KERNEL)?;
        let sender = {
            let fixture = fixture.clone();
            spawn(move || {
                let (mut at, mut size) = (0, 1);
                while at < LEN {
                    size = (size * 31 + 7) % 70_000 + 1;
                    let Ok(data) = pattern(at, size.min(LEN - at)) else {
                        return;
                    };
                    let sent = with_source(&data, |from| {
                        fixture.client.send(fixture.a.sk(), from, WAIT)
                    });
                    assert_eq!(sent, Ok(data.len()));
                    at += data.len();
                }
                fixture.client.close(false);
            })?
        };
        let (mut at, mut size) = (0, 1);
        let mut got = KVVec::from_elem(0, 70_000, GFP_KERNEL)?;
        loop {
            size = (size * 17 + 5) % 70_000 + 1;
            let room = got.get_mut(..size).ok_or(EFAULT)?;
            match recv(&fixture.server, &fixture.b, room, WAIT)? {
                0 => break,
                len => {
                    assert!(got.get(..len) == Some(&pattern(at, len)?[..]));
                    at += len;
                }
            }
        }
        sender.wait_for_completion();
        assert_eq!(at, LEN);
        Ok(())
    }

    #[test]
    fn messages_go_back_and_forth_between_sleeping_tasks() -> Result {
        const ROUNDS: u32 = 2000;
        let fixture = Arc::new(Fixture::new()?, GFP_KERNEL)?;
        let echo = {
            let fixture = fixture.clone();
            spawn(move || {
                let mut data = [0; 64];
                while recv(&fixture.server, &fixture.b, &mut data, WAIT) == Ok(data.len()) {
                    let sent = with_source(&data, |from| {
                        fixture.server.send(fixture.b.sk(), from, WAIT)
                    });
                    assert_eq!(sent, Ok(data.len()));
                }
            })?
        };
        for round in 0..ROUNDS {
            let [byte, ..] = round.to_le_bytes();
            let sent = [byte; 64];
            assert_eq!(fixture.a_sends(&sent)?, sent.len());
            let mut got = [0; 64];
            assert_eq!(
                recv(&fixture.client, &fixture.a, &mut got, WAIT)?,
                got.len()
            );
            assert_eq!(got, sent);
        }
        fixture.client.close(false);
        echo.wait_for_completion();
        Ok(())
    }

    #[test]
    fn the_last_byte_arrives_however_soon_the_sender_closes() -> Result {
        for round in 0..500_usize {
            let fixture = Arc::new(Fixture::new()?, GFP_KERNEL)?;
            let len = (round * 977) % 40_000 + 1;
            let sender = {
                let fixture = fixture.clone();
                spawn(move || {
                    let Ok(data) = pattern(round, len) else {
                        return;
                    };
                    let sent = with_source(&data, |from| {
                        fixture.client.send(fixture.a.sk(), from, WAIT)
                    });
                    assert_eq!(sent, Ok(len));
                    fixture.client.close(false);
                })?
            };
            let mut got = KVVec::from_elem(0, len + 1, GFP_KERNEL)?;
            let mut at = 0;
            loop {
                let room = got.get_mut(at..).ok_or(EFAULT)?;
                match recv(&fixture.server, &fixture.b, room, WAIT)? {
                    0 => break,
                    more => at += more,
                }
            }
            assert_eq!(at, len);
            assert!(got.get(..len) == Some(&pattern(round, len)?[..]));
            sender.wait_for_completion();
            fixture.server.close(false);
            assert_eq!(fixture.dmbs_in_use()?, 0);
        }
        Ok(())
    }

    #[test]
    fn a_close_in_the_middle_of_sending_loses_no_memory() -> Result {
        for round in 0..200_usize {
            let fixture = Arc::new(Fixture::new()?, GFP_KERNEL)?;
            let sender = {
                let fixture = fixture.clone();
                spawn(move || {
                    let data = [1; 4000];
                    let err = loop {
                        let sent = with_source(&data, |from| {
                            fixture.client.send(fixture.a.sk(), from, WAIT)
                        });
                        if let Err(err) = sent {
                            break err;
                        }
                    };
                    assert!(err == ECONNRESET || err == EPIPE);
                    fixture.client.close(false);
                })?
            };
            let mut got = KVVec::from_elem(0, 10_000, GFP_KERNEL)?;
            for _ in 0..round % 20 {
                recv(&fixture.server, &fixture.b, &mut got, WAIT)?;
            }
            fixture.server.close(false);
            sender.wait_for_completion();
            assert_eq!(fixture.dmbs_in_use()?, 0);
            assert_eq!(fixture.client.info().charged, 0);
            assert_eq!(fixture.server.info().charged, 0);
        }
        Ok(())
    }

    #[test]
    fn an_end_nobody_took_costs_nothing_in_the_end() -> Result {
        let Fixture {
            client,
            server,
            a,
            b,
            groups,
        } = Fixture::unaccepted()?;
        send(&client, &a, b"x")?;
        drop(client);
        drop(server);
        drop((a, b));
        let shared = groups.shared();
        assert_eq!(
            usize::try_from(shared.device().dmbs())?,
            shared.idle_rings()
        );
        Ok(())
    }
}
