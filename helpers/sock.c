// SPDX-License-Identifier: GPL-2.0

#include <linux/net.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/user_namespace.h>
#include <linux/xfrm.h>
#include <net/sock.h>

/*
 * The user of the host who answers for a socket. That of a socket within a user
 * namespace is the one who made that namespace, who has many numbers in there,
 * or its own administrator when the host's made it for others.
 */
u32 rust_helper_sk_answerable_uid(const struct sock *sk)
{
	struct user_namespace *ns = sock_net(sk)->user_ns;

	if (ns == &init_user_ns)
		return __kuid_val(sk_uid(sk));
	while (ns->parent != &init_user_ns)
		ns = ns->parent;
	if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
		return __kuid_val(ns->owner);
	return __kuid_val(make_kuid(ns, 0));
}

void rust_helper_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

void rust_helper_sock_put(struct sock *sk)
{
	sock_put(sk);
}

void rust_helper_sock_gen_put(struct sock *sk)
{
	sock_gen_put(sk);
}

bool rust_helper_sk_fullsock(struct sock *sk)
{
	return sk_fullsock(sk);
}

void rust_helper_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

void rust_helper_local_bh_disable(void)
{
	local_bh_disable();
}

void rust_helper_local_bh_enable(void)
{
	local_bh_enable();
}

void rust_helper_bh_lock_sock(struct sock *sk)
{
	bh_lock_sock(sk);
}

void rust_helper_bh_unlock_sock(struct sock *sk)
{
	bh_unlock_sock(sk);
}

bool rust_helper_sock_owned_by_user(struct sock *sk)
{
	return sock_owned_by_user(sk);
}

bool rust_helper_sock_flag_dead(struct sock *sk)
{
	return sock_flag(sk, SOCK_DEAD);
}

void rust_helper_sock_orphan(struct sock *sk)
{
	sock_orphan(sk);
}

void rust_helper_sock_graft(struct sock *sk, struct socket *parent)
{
	sock_graft(sk, parent);
}

wait_queue_head_t *rust_helper_sk_sleep(struct sock *sk)
{
	return sk_sleep(sk);
}

void rust_helper_sk_wake_all(struct sock *sk)
{
	struct socket_wq *wq = rcu_dereference(sk->sk_wq);

	if (skwq_has_sleeper(wq))
		wake_up_interruptible_all(&wq->wait);
}

void rust_helper_sk_wake_writers(struct sock *sk)
{
	struct socket_wq *wq = rcu_dereference(sk->sk_wq);

	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait,
					   EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
}

void rust_helper_sk_wake_async_out(struct sock *sk)
{
	sk_wake_async_rcu(sk, SOCK_WAKE_SPACE, POLL_OUT);
}

bool rust_helper_sk_clear_nospace(struct sock *sk)
{
	struct socket *sock = READ_ONCE(sk->sk_socket);

	return sock && test_and_clear_bit(SOCK_NOSPACE, &sock->flags);
}

void rust_helper_sk_set_nospace(struct sock *sk)
{
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, sk);
	set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
	/* Pairs with the barrier of whoever makes room and then looks for the bit. */
	smp_mb__after_atomic();
}

bool rust_helper_sk_is_async(struct sock *sk)
{
	return sock_flag(sk, SOCK_FASYNC);
}

void rust_helper_sk_set_waitdata(struct sock *sk)
{
	sk_set_bit(SOCKWQ_ASYNC_WAITDATA, sk);
}

void rust_helper_sk_clear_waitdata(struct sock *sk)
{
	sk_clear_bit(SOCKWQ_ASYNC_WAITDATA, sk);
}

/* As mptcp_init_sock(): options of SOL_SOCKET come to us, and MSG_ZEROCOPY. */
void rust_helper_socket_set_custom_sockopt(struct socket *sock)
{
	set_bit(SOCK_CUSTOM_SOCKOPT, &sock->flags);
	set_bit(SOCK_SUPPORT_ZC, &sock->flags);
}

void rust_helper_sock_poll_wait(struct file *file, struct socket *sock,
				struct poll_table_struct *wait)
{
	sock_poll_wait(file, sock, wait);
}

void rust_helper_sock_lock_init_smc_class(struct sock *sk)
{
	static struct lock_class_key slock_key, key;

	sock_lock_init_class_and_name(sk, "slock-SMC", &slock_key, "sk_lock-SMC", &key);
}

u16 rust_helper_sk_protocol(struct sock *sk)
{
	return sk->sk_protocol;
}

int __percpu *rust_helper_alloc_percpu_int(void)
{
	return alloc_percpu(int);
}

void rust_helper_free_percpu_int(int __percpu *ptr)
{
	free_percpu(ptr);
}

int rust_helper_sock_intr_errno(long timeo)
{
	return sock_intr_errno(timeo);
}

void rust_helper_sk_callback_read_lock(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
}

void rust_helper_sk_callback_read_unlock(struct sock *sk)
{
	read_unlock_bh(&sk->sk_callback_lock);
}

void rust_helper_sk_callback_write_lock(struct sock *sk)
{
	write_lock_bh(&sk->sk_callback_lock);
}

void rust_helper_sk_callback_write_unlock(struct sock *sk)
{
	write_unlock_bh(&sk->sk_callback_lock);
}

void rust_helper_sk_assign_wq(struct sock *sk, struct socket *sock)
{
	rcu_assign_pointer(sk->sk_wq, &sock->wq);
}

void rust_helper_sk_clear_wq(struct sock *sk)
{
	RCU_INIT_POINTER(sk->sk_wq, NULL);
}

void rust_helper_sk_assign_user_data_nocopy(struct sock *sk, void *data)
{
	__rcu_assign_sk_user_data_with_flags(sk, data, data ? SK_USER_DATA_NOCOPY : 0);
}

/* Under sk_callback_lock, which is all that a callback run from the backlog holds. */
void *rust_helper_sk_user_data(struct sock *sk)
{
	return __locked_read_sk_user_data_with_flags(sk, 0);
}

void rust_helper_sock_set_flag_fasync(struct sock *sk)
{
	sock_set_flag(sk, SOCK_FASYNC);
}

bool rust_helper_sock_flag_urginline(struct sock *sk)
{
	return sock_flag(sk, SOCK_URGINLINE);
}

bool rust_helper_sock_flag_linger(struct sock *sk)
{
	return sock_flag(sk, SOCK_LINGER);
}

void rust_helper_sock_prot_inuse_add(struct sock *sk, int val)
{
	sock_prot_inuse_add(sock_net(sk), sk->sk_prot, val);
}

bool rust_helper_signal_pending_current(void)
{
	return signal_pending(current);
}

unsigned long rust_helper_sock_i_ino(struct sock *sk)
{
	return sock_i_ino(sk);
}

void rust_helper_sk_add_node(struct sock *sk, struct hlist_head *list)
{
	sk_add_node(sk, list);
}

void rust_helper_sk_del_node_init(struct sock *sk)
{
	sk_del_node_init(sk);
}

struct sock *rust_helper_sk_head(struct hlist_head *list)
{
	return sk_head(list);
}

struct sock *rust_helper_sk_next(struct sock *sk)
{
	return sk_next(sk);
}

struct file *rust_helper_socket_file(struct socket *sock)
{
	return READ_ONCE(sock->file);
}

int rust_helper_copy_from_sockptr(void *dst, sockptr_t src, size_t size)
{
	return copy_from_sockptr(dst, src, size);
}

void rust_helper_sk_mirror_incoming_cpu(struct sock *to, const struct sock *from)
{
	WRITE_ONCE(to->sk_incoming_cpu, READ_ONCE(from->sk_incoming_cpu));
}

/* Whether the socket is to be told when its data came, see sock_set_timestamping(). */
bool rust_helper_sk_wants_rx_stamps(const struct sock *sk)
{
	return sock_flag(sk, SOCK_RCVTSTAMP) ||
	       READ_ONCE(sk->sk_tsflags) & SOF_TIMESTAMPING_RX_SOFTWARE;
}

/* The time stamp of SO_TIMESTAMP and SO_TIMESTAMPNS, with fractions of a second. */
static void put_stamp(struct msghdr *msg, const struct sock *sk, int old, int new, s64 sec,
		      s64 fraction)
{
	__kernel_old_time_t stamp_old[2] = { sec, fraction };
	s64 stamp[2] = { sec, fraction };

	if (sock_flag(sk, SOCK_TSTAMP_NEW))
		put_cmsg(msg, SOL_SOCKET, new, sizeof(stamp), stamp);
	else
		put_cmsg(msg, SOL_SOCKET, old, sizeof(stamp_old), stamp_old);
}

/* tcp_recv_timestamp() is not exported. */
void rust_helper_msg_put_rx_stamp(struct msghdr *msg, const struct sock *sk, ktime_t stamp)
{
	struct scm_timestamping_internal tss = { .ts = { stamp } };
	struct timespec64 ts = ktime_to_timespec64(stamp);
	u32 tsflags = READ_ONCE(sk->sk_tsflags);

	if (sock_flag(sk, SOCK_RCVTSTAMP)) {
		if (sock_flag(sk, SOCK_RCVTSTAMPNS))
			put_stamp(msg, sk, SO_TIMESTAMPNS_OLD, SO_TIMESTAMPNS_NEW, ts.tv_sec,
				  ts.tv_nsec);
		else
			put_stamp(msg, sk, SO_TIMESTAMP_OLD, SO_TIMESTAMP_NEW, ts.tv_sec,
				  ts.tv_nsec / NSEC_PER_USEC);
	}
	if (!(tsflags & SOF_TIMESTAMPING_SOFTWARE) ||
	    !(tsflags & SOF_TIMESTAMPING_RX_SOFTWARE ||
	      !(tsflags & SOF_TIMESTAMPING_OPT_RX_FILTER)))
		return;
	if (sock_flag(sk, SOCK_TSTAMP_NEW))
		put_cmsg_scm_timestamping64(msg, &tss);
	else
		put_cmsg_scm_timestamping(msg, &tss);
}

int rust_helper_msg_tx_stamps(struct sock *sk, struct msghdr *msg, u32 *stamps)
{
	struct sockcm_cookie sockc;

	sockcm_init(&sockc, sk);
	if (sock_cmsg_send(sk, msg, &sockc))
		return -EINVAL;
	*stamps = sockc.tsflags & SOF_TIMESTAMPING_TX_RECORD_MASK;
	return 0;
}

/*
 * The socket-level options that core reads from the socket an application
 * holds. SOCK_TIMESTAMP and SOCK_TIMESTAMPING_RX_SOFTWARE are none of them: they
 * count a user of net_enable_timestamp(), which sk_destruct() would take back.
 */
#define SK_MIRRORED_FLAGS							\
	(BIT(SOCK_LINGER) | BIT(SOCK_KEEPOPEN) | BIT(SOCK_URGINLINE) |		\
	 BIT(SOCK_BROADCAST) | BIT(SOCK_DBG) | BIT(SOCK_LOCALROUTE) |		\
	 BIT(SOCK_RCVTSTAMP) | BIT(SOCK_RCVTSTAMPNS) | BIT(SOCK_TSTAMP_NEW) |	\
	 BIT(SOCK_RXQ_OVFL) | BIT(SOCK_WIFI_STATUS) | BIT(SOCK_NOFCS) |		\
	 BIT(SOCK_FILTER_LOCKED) |						\
	 BIT(SOCK_SELECT_ERR_QUEUE) | BIT(SOCK_ZEROCOPY) | BIT(SOCK_TXTIME) |	\
	 BIT(SOCK_RCVMARK) | BIT(SOCK_RCVPRIORITY))

void rust_helper_sk_mirror_options(struct sock *to, const struct sock *from)
{
	to->sk_flags = (to->sk_flags & ~SK_MIRRORED_FLAGS) |
		       (from->sk_flags & SK_MIRRORED_FLAGS);
	to->sk_reuse = from->sk_reuse;
	to->sk_reuseport = from->sk_reuseport;
	to->sk_userlocks = from->sk_userlocks;
	WRITE_ONCE(to->sk_sndbuf, from->sk_sndbuf);
	WRITE_ONCE(to->sk_rcvbuf, from->sk_rcvbuf);
	WRITE_ONCE(to->sk_rcvlowat, from->sk_rcvlowat);
	WRITE_ONCE(to->sk_rcvtimeo, from->sk_rcvtimeo);
	WRITE_ONCE(to->sk_sndtimeo, from->sk_sndtimeo);
	WRITE_ONCE(to->sk_lingertime, from->sk_lingertime);
	WRITE_ONCE(to->sk_priority, from->sk_priority);
	WRITE_ONCE(to->sk_mark, from->sk_mark);
	WRITE_ONCE(to->sk_bound_dev_if, from->sk_bound_dev_if);
	WRITE_ONCE(to->sk_max_pacing_rate, from->sk_max_pacing_rate);
	WRITE_ONCE(to->sk_tsflags, from->sk_tsflags);
	WRITE_ONCE(to->sk_bind_phc, from->sk_bind_phc);
	rust_helper_sk_mirror_incoming_cpu(to, from);
	WRITE_ONCE(to->sk_txrehash, from->sk_txrehash);
	to->sk_clockid = from->sk_clockid;
	to->sk_txtime_deadline_mode = from->sk_txtime_deadline_mode;
	to->sk_txtime_report_errors = from->sk_txtime_report_errors;
	to->sk_no_check_tx = from->sk_no_check_tx;
#ifdef CONFIG_NET_RX_BUSY_POLL
	WRITE_ONCE(to->sk_ll_usec, from->sk_ll_usec);
	WRITE_ONCE(to->sk_prefer_busy_poll, from->sk_prefer_busy_poll);
#endif
}

int rust_helper_sk_xchg_err(struct sock *sk)
{
	return xchg(&sk->sk_err, 0);
}

bool rust_helper_sk_has_xfrm_policy(struct sock *sk)
{
#ifdef CONFIG_XFRM
	return rcu_access_pointer(sk->sk_policy[XFRM_POLICY_IN]) ||
	       rcu_access_pointer(sk->sk_policy[XFRM_POLICY_OUT]);
#else
	return false;
#endif
}

bool rust_helper_sk_has_queued_errors(struct sock *sk)
{
	return !skb_queue_empty_lockless(&sk->sk_error_queue);
}

bool rust_helper_sock_flag_zerocopy(struct sock *sk)
{
	return sock_flag(sk, SOCK_ZEROCOPY);
}

void rust_helper_ubuf_set_copied(struct ubuf_info *uarg)
{
	uarg_to_msgzc(uarg)->zerocopy = 0;
}

void rust_helper_net_zcopy_put(struct ubuf_info *uarg)
{
	net_zcopy_put(uarg);
}

void rust_helper_net_zcopy_put_abort(struct ubuf_info *uarg, bool have_uref)
{
	net_zcopy_put_abort(uarg, have_uref);
}

bool rust_helper_msg_get_inq(struct msghdr *msg)
{
	return msg->msg_get_inq;
}

bool rust_helper_sk_has_data(struct sock *sk)
{
	return !skb_queue_empty_lockless(&sk->sk_receive_queue);
}

u32 rust_helper_sk_userlocks(struct sock *sk)
{
	return sk->sk_userlocks;
}

bool rust_helper_sk_kern_sock(struct sock *sk)
{
	return sk->sk_kern_sock;
}

void rust_helper_send_sigpipe_current(void)
{
	send_sig(SIGPIPE, current, 0);
}

u16 rust_helper_sk_dport(struct sock *sk)
{
	return (__force u16)READ_ONCE(sk->sk_dport);
}

u32 rust_helper_sk_rcv_saddr(struct sock *sk)
{
	return (__force u32)READ_ONCE(sk->sk_rcv_saddr);
}

u32 rust_helper_sk_daddr(struct sock *sk)
{
	return (__force u32)READ_ONCE(sk->sk_daddr);
}

sockptr_t rust_helper_kernel_sockptr(void *ptr)
{
	return KERNEL_SOCKPTR(ptr);
}

void rust_helper_module_hold(struct module *module)
{
	__module_get(module);
}

bool rust_helper_socket_nonblock(struct socket *sock)
{
	return READ_ONCE(sock->file->f_flags) & O_NONBLOCK;
}

/* Shortens a message, and returns how many bytes it had. */
size_t rust_helper_msg_truncate(struct msghdr *msg, size_t bytes)
{
	size_t had = msg_data_left(msg);

	iov_iter_truncate(&msg->msg_iter, bytes);
	return had;
}

void rust_helper_msg_reexpand(struct msghdr *msg, size_t bytes)
{
	iov_iter_reexpand(&msg->msg_iter, bytes);
}
