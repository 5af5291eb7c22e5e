// TLS between processes that know a secret: the data that it carries, and the peers and records that it refuses.
#include "security/tls.hpp"

#include "security/tls_test_support.hpp"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::security::tls_tests {
namespace {

struct Ends {
    std::unique_ptr<Tls> client, server;
    explicit Ends(const Secret& secret = the_secret(), std::string_view name = identity)
        : client(Tls::connecting(secret, std::string(name))),
          server(Tls::accepting(the_secret(), [](std::string_view named) { return named == identity; })) {}

    // The output of both, in pieces.
    void converse(std::size_t piece = 100'000) const {
        for (bool moved = true; moved;) {
            moved = false;
            for (const auto& [from, to] :
                 {std::pair(client.get(), server.get()), std::pair(server.get(), client.get())}) {
                const Bytes bytes = take_output(*from);
                for (std::size_t i = 0; i < bytes.size(); i += piece)
                    give(*to, std::span(bytes).subspan(i, std::min(piece, bytes.size() - i)));
                moved |= !bytes.empty();
            }
        }
    }
};

std::string read_all(Tls& tls) {
    std::string text;
    std::array<std::byte, 1000> room;
    while (const std::size_t count = tls.read(room)) text.append(reinterpret_cast<const char*>(room.data()), count);
    return text;
}

TEST(Tls, opens_with_one_secret_however_the_bytes_are_cut_and_carries_both_ways) {
    for (const std::size_t piece : {1, 7, 100, 100'000}) {
        const Ends ends;
        ends.converse(piece);
        ASSERT_EQ(ends.client->state(), Tls::State::open) << ends.client->error();
        ASSERT_EQ(ends.server->state(), Tls::State::open) << ends.server->error();
        EXPECT_EQ(ends.server->identity(), identity);
        EXPECT_TRUE(ends.client->cipher() == "TLS_AES_128_GCM_SHA256" ||
                    ends.client->cipher() == "TLS_CHACHA20_POLY1305_SHA256")
            << ends.client->cipher();
        const std::string question(50'000, 'q'), answer = "yes";
        ASSERT_TRUE(ends.client->write(bytes_of(question)));
        const Bytes records = take_output(*ends.client);
        EXPECT_EQ(std::ranges::search(records, bytes_of("qqqq")).size(), 0U) << "it travels as it is";
        std::string got;
        for (std::size_t i = 0; i < records.size(); i += piece) {
            ends.server->input().append(std::span(records).subspan(i, std::min(piece, records.size() - i)));
            got += read_all(*ends.server);
        }
        EXPECT_EQ(got, question);
        ASSERT_TRUE(ends.server->write(bytes_of(answer)));
        give(*ends.client, take_output(*ends.server));
        EXPECT_EQ(read_all(*ends.client), answer);
    }
}

TEST(Tls, two_connections_with_one_secret_have_different_keys) {
    const Ends first, second;
    first.converse();
    second.converse();
    ASSERT_TRUE(first.client->write(bytes_of("the same words")));
    ASSERT_TRUE(second.client->write(bytes_of("the same words")));
    EXPECT_NE(take_output(*first.client), take_output(*second.client));
}

TEST(Tls, goes_on_when_its_key_is_renewed) {
    const Ends ends;
    ends.converse();
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(ends.client->write(bytes_of("before")) && ends.client->renew_key() &&
                    ends.client->write(bytes_of(" and after")));
        ends.server->input().append(take_output(*ends.client));
        EXPECT_EQ(read_all(*ends.server), "before and after") << ends.server->error();
    }
}

TEST(Tls, fails_on_both_ends_with_another_secret_or_another_purpose) {
    const Ends other_secret(Secret::from_text("another")), other_purpose(the_secret(), "tutti 1 test rank 0 to rank 2");
    for (const Ends* ends : {&other_secret, &other_purpose}) {
        ends->converse();
        EXPECT_EQ(ends->client->state(), Tls::State::failed);
        EXPECT_EQ(ends->server->state(), Tls::State::failed);
        EXPECT_NE(ends->client->error().find("does not know this job's secret"), std::string::npos)
            << ends->client->error();
        EXPECT_NE(ends->server->error().find("rank 0 to rank"), std::string::npos) << ends->server->error();
    }
}

TEST(Tls, its_own_words_given_back_are_refused) {
    auto client = Tls::connecting(the_secret(), std::string(identity));
    give(*client, take_output(*client));
    EXPECT_EQ(client->state(), Tls::State::failed);

    const Ends ends;
    ends.converse();
    ASSERT_TRUE(ends.client->write(bytes_of("what I say")));
    ends.client->input().append(take_output(*ends.client));
    EXPECT_EQ(read_all(*ends.client), "");
    EXPECT_EQ(ends.client->state(), Tls::State::failed);
}

TEST(Tls, a_recorded_connection_is_refused_when_it_is_played_again) {
    const Ends ends;
    Bytes recorded = take_output(*ends.client);
    give(*ends.server, recorded);
    give(*ends.client, take_output(*ends.server));
    ASSERT_EQ(ends.client->state(), Tls::State::open);
    ASSERT_TRUE(ends.client->write(bytes_of("do this once")));
    const Bytes rest = take_output(*ends.client);
    recorded.insert(recorded.end(), rest.begin(), rest.end());
    const auto again = Tls::accepting(the_secret(), [](std::string_view) { return true; });
    for (const std::byte byte : recorded) give(*again, {&byte, 1});
    EXPECT_EQ(read_all(*again), "");
    EXPECT_EQ(again->state(), Tls::State::failed);
}

TEST(Tls, no_bit_that_flips_in_the_handshake_passes) {
    for (std::size_t bit = 0; bit < 4000; bit += 37) {
        const Ends ends;
        Bytes hello = take_output(*ends.client);
        if (bit / 8 >= hello.size()) break;
        hello[bit / 8] ^= std::byte{1} << (bit % 8);
        give(*ends.server, hello);
        ends.converse();
        EXPECT_FALSE(ends.server->state() == Tls::State::open && ends.client->state() == Tls::State::open) << bit;
        EXPECT_NE(ends.server->state(), Tls::State::open) << bit;
    }
}

TEST(Tls, nothing_of_a_record_that_was_changed_injected_dropped_or_sent_again_is_given) {
    constexpr std::size_t header = 5;
    const auto attack = [](auto&& change) {
        const Ends ends;
        ends.converse();
        Bytes sent;
        std::vector<std::size_t> ends_of_records;
        for (const std::string_view word : {"one", "two", "six"}) {
            EXPECT_TRUE(ends.client->write(bytes_of(word)));
            const Bytes record = take_output(*ends.client);
            sent.insert(sent.end(), record.begin(), record.end());
            ends_of_records.push_back(sent.size());
        }
        change(sent, ends_of_records);
        ends.server->input().append(sent);
        const std::string got = read_all(*ends.server);
        EXPECT_EQ(ends.server->state(), Tls::State::failed);
        EXPECT_TRUE(std::string_view("onetwosix").starts_with(got)) << got;
        return got;
    };
    using Places = std::vector<std::size_t>;
    EXPECT_EQ(attack([](Bytes& sent, const Places& at) { sent[at[0] + header] ^= std::byte{4}; }), "one");
    EXPECT_EQ(attack([](Bytes& sent, const Places& at) { sent[at[2] - 1] ^= std::byte{128}; }), "onetwo");
    EXPECT_EQ(attack([](Bytes& sent, const Places& at) {
                  const Bytes again(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(at[0]));
                  sent.insert(sent.end(), again.begin(), again.end());
              }),
              "onetwosix");
    EXPECT_EQ(attack([](Bytes& sent, const Places& at) {
                  sent.erase(sent.begin() + static_cast<std::ptrdiff_t>(at[0]),
                             sent.begin() + static_cast<std::ptrdiff_t>(at[1]));
              }),
              "one");
    EXPECT_EQ(attack([](Bytes& sent, const Places&) {
                  const Bytes forged{std::byte{23}, std::byte{3}, std::byte{3}, std::byte{0}, std::byte{20}};
                  sent.insert(sent.begin(), forged.begin(), forged.end());
              }),
              "");
    // No record, which would have a length that never comes.
    EXPECT_EQ(attack([](Bytes& sent, const Places& at) {
                  const Bytes forged{std::byte{9}, std::byte{3}, std::byte{3}, std::byte{32}, std::byte{0}};
                  sent.insert(sent.begin() + static_cast<std::ptrdiff_t>(at[0]), forged.begin(), forged.end());
              }),
              "one");
    EXPECT_EQ(attack([](Bytes& sent, const Places&) { sent.assign(5, std::byte{255}); }), "");
}

// ---- With OpenSSL's own TLS at the other end, which knows nothing of ours

class OpenSsl {
 public:
    enum class Role { client, server };
    explicit OpenSsl(Role role) : context_(SSL_CTX_new(TLS_method())), ssl_(nullptr) {
        SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION);
        SSL_CTX_set_num_tickets(context_, 0);
        SSL_CTX_set_block_padding(context_, 512);
        SSL_CTX_set_psk_use_session_callback(context_, [](SSL* ssl, const EVP_MD*, const unsigned char** name,
                                                          std::size_t* size, SSL_SESSION** session) {
            *name = reinterpret_cast<const unsigned char*>(identity.data());
            *size = identity.size();
            *session = key(ssl);
            return 1;
        });
        SSL_CTX_set_psk_find_session_callback(
            context_, [](SSL* ssl, const unsigned char* name, std::size_t size, SSL_SESSION** session) {
                const bool known = identity == std::string_view(reinterpret_cast<const char*>(name), size);
                *session = known ? key(ssl) : nullptr;
                return 1;
            });
        ssl_ = SSL_new(context_);
        SSL_set_bio(ssl_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
        if (role == Role::client)
            SSL_set_connect_state(ssl_);
        else
            SSL_set_accept_state(ssl_);
        SSL_do_handshake(ssl_);
    }
    ~OpenSsl() {
        SSL_free(ssl_);
        SSL_CTX_free(context_);
    }
    OpenSsl(const OpenSsl&) = delete;
    OpenSsl& operator=(const OpenSsl&) = delete;

    void take(const Bytes& bytes) {
        if (!bytes.empty()) BIO_write(SSL_get_rbio(ssl_), bytes.data(), static_cast<int>(bytes.size()));
        if (SSL_in_init(ssl_) != 0) SSL_do_handshake(ssl_);
    }
    Bytes output() {
        Bytes bytes(BIO_ctrl_pending(SSL_get_wbio(ssl_)));
        if (!bytes.empty()) BIO_read(SSL_get_wbio(ssl_), bytes.data(), static_cast<int>(bytes.size()));
        return bytes;
    }
    bool write(std::string_view text) { return SSL_write(ssl_, text.data(), static_cast<int>(text.size())) > 0; }
    std::string read() {
        std::string text(100'000, '\0');
        std::size_t size = 0;
        for (int count = 1; count > 0; size += static_cast<std::size_t>(std::max(count, 0)))
            count = SSL_read(ssl_, text.data() + size, static_cast<int>(text.size() - size));
        return text.substr(0, size);
    }
    SSL* ssl() { return ssl_; }

 private:
    static SSL_SESSION* key(SSL* ssl) {
        constexpr unsigned char suite[] = {0x13, 0x01};
        const Mac psk = the_secret().mac({bytes_of("tutti tls psk 1:"), bytes_of(identity)});
        SSL_SESSION* session = SSL_SESSION_new();
        SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(psk.data()), psk.size());
        SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite));
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
        return session;
    }
    SSL_CTX* context_;
    SSL* ssl_;
};

// Does the handshake by a certificate, as any web server does, and not by a key that both know.
void show_certificate_instead(SSL* ssl) {
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    X509* const certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    EXPECT_EQ(SSL_use_certificate(ssl, certificate), 1);
    EXPECT_EQ(SSL_use_PrivateKey(ssl, key), 1);
    SSL_set_psk_find_session_callback(ssl, nullptr);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

TEST(Tls, a_server_that_has_a_certificate_and_not_the_secret_is_refused) {
    const auto client = Tls::connecting(the_secret(), std::string(identity));
    OpenSsl server(OpenSsl::Role::server);
    show_certificate_instead(server.ssl());
    for (int turn = 0; turn < 3; ++turn) {
        server.take(take_output(*client));
        give(*client, server.output());
    }
    EXPECT_EQ(client->state(), Tls::State::failed);
    EXPECT_NE(client->error().find("does not know this job's secret"), std::string::npos) << client->error();
    EXPECT_FALSE(client->write(std::as_bytes(std::span("what only ranks may know"))));
}

TEST(Tls, speaks_with_the_tls_of_openssl_as_either_end_with_padding_new_keys_and_both_ciphers) {
    for (const auto role : {OpenSsl::Role::client, OpenSsl::Role::server}) {
        for (const char* suite : {"TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"}) {
            OpenSsl other(role);
            SSL_set_ciphersuites(other.ssl(), suite);
            if (role == OpenSsl::Role::client) {  // its words were made before
                SSL_clear(other.ssl());
                (void)other.output();
                SSL_do_handshake(other.ssl());
            }
            const auto ours = role == OpenSsl::Role::client
                                  ? Tls::accepting(the_secret(), [](std::string_view name) { return name == identity; })
                                  : Tls::connecting(the_secret(), std::string(identity));
            const auto converse = [&] {
                for (int i = 0; i < 4; ++i) {
                    give(*ours, other.output());
                    other.take(take_output(*ours));
                }
            };
            converse();
            ASSERT_EQ(ours->state(), Tls::State::open) << ours->error();
            EXPECT_EQ(ours->cipher(), suite);
            for (int round = 0; round < 3; ++round) {
                const std::string words(20'000, static_cast<char>('a' + round));
                ASSERT_TRUE(ours->write(bytes_of(words)) && other.write(words));
                other.take(take_output(*ours));
                EXPECT_EQ(other.read(), words);
                ours->input().append(other.output());
                EXPECT_EQ(read_all(*ours), words) << ours->error();
                ASSERT_TRUE(ours->renew_key());
                // Asks for a new key of ours, too.
                ASSERT_EQ(SSL_key_update(other.ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
            }
            ours->end();
            other.take(take_output(*ours));
            EXPECT_EQ(other.read(), "");
            EXPECT_EQ(SSL_get_shutdown(other.ssl()), SSL_RECEIVED_SHUTDOWN);
            SSL_shutdown(other.ssl());
            ours->input().append(other.output());
            EXPECT_EQ(read_all(*ours), "");
            EXPECT_EQ(ours->state(), Tls::State::ended) << ours->error();
        }
    }
}

}  // namespace
}  // namespace tutti::security::tls_tests
