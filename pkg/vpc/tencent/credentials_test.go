package tencent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/tencent"
)

func getenv(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every source of keys signs calls that the API takes, in the order environment,
// file, pod identity, role.
func TestCredentialSources(t *testing.T) {
	o := emulated.Defaults()
	good := fmt.Sprintf("# comment\n[other]\nsecret_id = x\n[default]\n; comment\nsecret_id = %s\r\nsecret_key=%s\n", o.SecretID, o.SecretKey)
	podIdentity := func(t *testing.T) map[string]string {
		return map[string]string{
			"TKE_REGION": o.Region, "TKE_PROVIDER_ID": "provider", "TKE_ROLE_ARN": "qcs::cam::uin/1:roleName/vpcroute",
			"TKE_WEB_IDENTITY_TOKEN_FILE": write(t, filepath.Join(t.TempDir(), "token"), "a token\n"),
		}
	}
	keys := map[string]string{"TENCENTCLOUD_SECRET_ID": o.SecretID, "TENCENTCLOUD_SECRET_KEY": o.SecretKey}
	tests := []struct {
		name   string
		source string
		env    func(t *testing.T) map[string]string
		from   string // what the source is called; "" with wantErr
		err    string
	}{
		{"environment", "", func(*testing.T) map[string]string { return keys }, "the environment", ""},
		{"environment before all others", "auto", func(t *testing.T) map[string]string {
			env := podIdentity(t)
			env["TENCENTCLOUD_SECRET_ID"], env["TENCENTCLOUD_SECRET_KEY"] = o.SecretID, o.SecretKey
			return env
		}, "the environment", ""},
		{"named file", "", func(t *testing.T) map[string]string {
			return map[string]string{"TENCENTCLOUD_CREDENTIALS_FILE": write(t, filepath.Join(t.TempDir(), "keys"), good)}
		}, "file ", ""},
		{"file at home", "", func(t *testing.T) map[string]string {
			home := t.TempDir()
			write(t, filepath.Join(home, ".tencentcloud", "credentials"), good)
			return map[string]string{"HOME": home}
		}, "file ", ""},
		{"pod identity", "", podIdentity, "pod identity qcs::cam::uin/1:roleName/vpcroute", ""},
		{"the machine's role", "", func(t *testing.T) map[string]string { return map[string]string{"HOME": t.TempDir()} }, "the machine's role", ""},
		{"the machine's role although keys are there", "cvm-role", func(*testing.T) map[string]string { return keys }, "the machine's role", ""},
		{"half of the environment", "", func(*testing.T) map[string]string { return map[string]string{"TENCENTCLOUD_SECRET_ID": "x"} }, "", "TENCENTCLOUD_SECRET_KEY is not"},
		{"named file that is missing", "", func(*testing.T) map[string]string {
			return map[string]string{"TENCENTCLOUD_CREDENTIALS_FILE": "/nowhere/keys"}
		}, "", "/nowhere/keys"},
		{"file without keys", "", func(t *testing.T) map[string]string {
			return map[string]string{"TENCENTCLOUD_CREDENTIALS_FILE": write(t, filepath.Join(t.TempDir(), "keys"), "[default]\nsecret_id = x\n")}
		}, "", "no secret_id and secret_key"},
		{"half of pod identity", "", func(*testing.T) map[string]string { return map[string]string{"TKE_ROLE_ARN": "x"} }, "", "TKE_REGION, TKE_PROVIDER_ID, TKE_WEB_IDENTITY_TOKEN_FILE missing"},
		{"pod identity that is not set up", "pod-identity", func(*testing.T) map[string]string { return nil }, "", `none in "pod-identity"`},
		{"unknown source", "vault", func(*testing.T) map[string]string { return nil }, "", "want one of auto, environment, file, pod-identity, cvm-role"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tencent.GlobalRoute)
			w.listen(t)
			w.SetRole("vpcroute-role")
			c, err := tencent.FindCredentials(tencent.CredentialOptions{
				Source: tt.source, Getenv: getenv(tt.env(t)), MetadataURL: w.config.Endpoint.URL, Endpoint: w.config.Endpoint,
			})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || !strings.HasPrefix(c.String(), tt.from) {
				t.Fatalf("%v, %v, want %q", c, err, tt.from)
			}
			w.config.Credentials = c
			if _, err := w.table(t).List(t.Context()); err != nil {
				t.Error(err)
			}
			for _, call := range w.Calls("AssumeRoleWithWebIdentity") {
				if !strings.Contains(call.Detail, `"a token"`) {
					t.Errorf("the pod's token was sent as %s", call.Detail)
				}
			}
		})
	}
}

// Temporary keys that were taken back are replaced at the next try.
func TestRevokedKeysAreRenewed(t *testing.T) {
	w := newWorld(tencent.GlobalRoute)
	w.listen(t)
	w.SetRole("vpcroute-role")
	c, err := tencent.FindCredentials(tencent.CredentialOptions{Source: "cvm-role", Getenv: getenv(nil), MetadataURL: w.config.Endpoint.URL})
	if err != nil {
		t.Fatal(err)
	}
	w.config.Credentials = c
	table := w.table(t)
	w.Revoke()
	if _, err := table.List(t.Context()); vpc.ClassOf(err) != vpc.Denied {
		t.Errorf("with revoked keys: %v", err)
	}
	if _, err := table.List(t.Context()); err != nil {
		t.Errorf("the next try: %v", err)
	}
}

// A metadata service that is not there, says no, or never answers is an error
// in good time, and names the way out.
func TestMetadataServiceTrouble(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	none := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(none.Close)
	tests := []struct {
		name, url, want string
		class           vpc.Class
	}{
		{"not there", "http://127.0.0.1:1", "is this a machine of Tencent Cloud?", vpc.Transient},
		{"no role", none.URL, "bind a CAM role", vpc.Denied},
		{"silent", silent.URL, "no answer in time", vpc.Transient},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tencent.GlobalRoute)
			c, err := tencent.FindCredentials(tencent.CredentialOptions{Source: "cvm-role", Getenv: getenv(nil), MetadataURL: tt.url})
			if err != nil {
				t.Fatal(err)
			}
			w.config.Credentials, w.config.CallTimeout = c, 200*time.Millisecond
			_, err = tencent.New(t.Context(), w.config)
			if err == nil || vpc.ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v (%v), want %v: %q", err, vpc.ClassOf(err), tt.class, tt.want)
			}
			if len(w.Calls()) != 0 {
				t.Error("the API was called without keys")
			}
		})
	}
}

// A clock that is off, a wrong key, an unknown id: each is Denied and says what
// it is.
func TestRefusedSignatures(t *testing.T) {
	o := emulated.Defaults()
	tests := []struct {
		name  string
		setUp func(w *world)
		want  string
	}{
		{"clock off", func(w *world) {
			*w = *newWorld(tencent.GlobalRoute, func(o *emulated.Options) { o.Skew = 6 * time.Minute })
		}, "clock is more than 5 minutes off"},
		{"wrong key", func(w *world) {
			w.config.Credentials = tencent.StaticCredentials(o.SecretID, tencent.NewSecret("wrong"), tencent.Secret{})
		}, "SignatureFailure"},
		{"unknown id", func(w *world) {
			w.config.Credentials = tencent.StaticCredentials("AKIDnobody", tencent.NewSecret("wrong"), tencent.Secret{})
		}, "SecretIdNotFound"},
		{"token that is not wanted", func(w *world) {
			w.config.Credentials = tencent.StaticCredentials(o.SecretID, tencent.NewSecret(o.SecretKey), tencent.NewSecret("token"))
		}, "TokenFailure"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tencent.GlobalRoute)
			tt.setUp(w)
			_, err := tencent.New(t.Context(), w.config)
			if vpc.ClassOf(err) != vpc.Denied || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// A file that is replaced, as a mounted Secret is, is read again.
func TestKeysFileIsReadAgain(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "keys"), "[default]\nsecret_id = a\nsecret_key = b\n")
	c, err := tencent.FindCredentials(tencent.CredentialOptions{Source: "file", Getenv: getenv(map[string]string{"TENCENTCLOUD_CREDENTIALS_FILE": path})})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "[default]\nsecret_id = c\nsecret_key = d\n")
	keys, err := c.Keys(t.Context())
	if err != nil || keys.ID != "c" || keys.Renew.IsZero() {
		t.Errorf("%+v, %v", keys, err)
	}
}

func TestSecretsHaveNoPrintableForm(t *testing.T) {
	const hidden = "s3cr3t"
	config := newWorld(tencent.GlobalRoute).config
	config.Credentials = tencent.StaticCredentials("id", tencent.NewSecret(hidden), tencent.NewSecret(hidden))
	keys, _ := config.Credentials.Keys(t.Context())
	values := []any{tencent.NewSecret(hidden), keys, &keys, config, &config, errors.Join(fmt.Errorf("%v", keys))}
	for _, v := range values {
		texts := []string{fmt.Sprint(v)}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
		if b, err := json.Marshal(v); err == nil {
			texts = append(texts, string(b))
		}
		for _, s := range texts {
			if strings.Contains(s, hidden) || strings.Contains(s, fmt.Sprintf("%x", hidden)) {
				t.Errorf("%T prints its secret: %s", v, s)
			}
		}
	}
}

// Every request names the program and the cluster.
func TestRequestsNameTheProgram(t *testing.T) {
	for _, mode := range bothModes {
		w := newWorld(mode)
		w.config.Product, w.config.Version = "vpcroute", "1.2.3+dirty/x"
		w.startMachines(1)
		table, err := tencent.New(t.Context(), w.config)
		if err != nil {
			t.Fatal(err)
		}
		apply(t, table, w.create(1))
		for _, c := range w.Calls() {
			if !strings.Contains(c.Client, "vpcroute 1.2.3_dirty_x; cluster cls-1") {
				t.Errorf("%s comes from %q", c.Operation, c.Client)
			}
		}
	}
}

// Each call is reported once, with its class.
func TestCallsAreReported(t *testing.T) {
	w := newWorld(tencent.VPC)
	w.startMachines(1)
	var calls []tencent.Call
	w.config.OnCall = func(c tencent.Call) { calls = append(calls, c) }
	table := w.table(t)
	calls = nil
	w.Inject(cloud.Fault{Operation: "CreateRoutes", Answer: &cloud.Answer{Code: "RequestLimitExceeded"}})
	_ = table.Apply(t.Context(), []vpc.Change{w.create(1)})
	if len(calls) != 1 || calls[0].Action != "CreateRoutes" || vpc.ClassOf(calls[0].Err) != vpc.Throttled {
		t.Errorf("%+v", calls)
	}
}

// A source that is counted and can fail.
type failing struct {
	tencent.Credentials
	asked  int
	broken bool
}

func (f *failing) Keys(ctx context.Context) (tencent.Keys, error) {
	f.asked++
	if f.broken {
		return tencent.Keys{}, errors.New("broken")
	}
	keys, err := f.Credentials.Keys(ctx)
	keys.Renew, keys.Expires = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	return keys, err
}

// Temporary keys are renewed in time, without asking for each call; while that
// fails those at hand serve until they end.
func TestKeysAreRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(tencent.GlobalRoute)
		source := &failing{Credentials: w.config.Credentials}
		w.config.Credentials = source
		table := w.table(t)
		list := func(wantAsked int, wantErr bool) {
			t.Helper()
			if _, err := table.List(t.Context()); (err != nil) != wantErr {
				t.Errorf("List: %v", err)
			}
			if source.asked != wantAsked {
				t.Errorf("asked %d times for keys, want %d", source.asked, wantAsked)
			}
		}
		list(1, false)
		time.Sleep(59 * time.Minute)
		list(1, false)
		time.Sleep(2 * time.Minute)
		list(2, false)
		time.Sleep(61 * time.Minute)
		source.broken = true
		list(3, false)
		list(3, false) // not asked again at once
		time.Sleep(time.Minute)
		list(4, false)
		time.Sleep(time.Hour)
		list(5, true) // ended
		source.broken = false
		list(6, false)
	})
}
