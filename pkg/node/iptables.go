package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
)

// chainPrefix starts the names of all our iptables chains; a chain's content is
// named by the hash that follows, so a chain is never edited: a new one is
// filled, jumped to, and the old one dropped. Chain names have at most 28
// characters (XT_EXTENSION_MAXNAMELEN less one).
const chainPrefix = "VPCROUTE-"

// IPTables keeps the masquerade rules, and the acceptance of forwarded pod
// traffic, in chains of our own that the built-in chains jump to. It is for
// hosts whose packet filter is iptables, of whichever back end the program at
// hand uses; on others NFTables needs no program at all.
type IPTables struct {
	v4, v6 *iptables.IPTables
}

// NewIPTables uses the given programs, for example "iptables-legacy" and
// "ip6tables-legacy"; v6 may be empty on a host without IPv6.
func NewIPTables(v4, v6 string) (*IPTables, error) {
	t := &IPTables{}
	var err error
	if t.v4, err = iptables.New(iptables.IPFamily(iptables.ProtocolIPv4), iptables.Path(v4)); err != nil {
		return nil, fmt.Errorf("use %s: %w", v4, err)
	}
	if v6 == "" {
		return t, nil
	}
	if t.v6, err = iptables.New(iptables.IPFamily(iptables.ProtocolIPv6), iptables.Path(v6)); err != nil {
		return nil, fmt.Errorf("use %s: %w", v6, err)
	}
	return t, nil
}

// Ensure brings the masquerade rules to what m says and reports whether
// anything had to be changed. No packet sees half of them: the new chain is
// complete before it is jumped to.
func (t *IPTables) Ensure(m Masquerade) (changed bool, err error) {
	if err := m.Validate(); err != nil {
		return false, err
	}
	return t.ensure(func(is4 bool) hookedChain { return masqueradeChain(m, is4) })
}

// EnsureForward has forwarded traffic of the bridge accepted, for hosts whose
// FORWARD policy is drop, and reports whether anything had to be changed.
func (t *IPTables) EnsureForward(bridge string) (changed bool, err error) {
	return t.ensure(func(bool) hookedChain {
		return hookedChain{table: "filter", hook: "FORWARD", kind: "FWD", rules: []string{
			"-i " + bridge + " -j ACCEPT",
			"-o " + bridge + " -j ACCEPT",
		}}
	})
}

// Remove deletes our chains and the jumps to them; it is not an error if they
// are gone already.
func (t *IPTables) Remove() error {
	_, err := t.ensure(func(bool) hookedChain { return hookedChain{table: "nat", hook: "POSTROUTING", kind: "MASQ"} })
	_, err2 := t.ensure(func(bool) hookedChain { return hookedChain{table: "filter", hook: "FORWARD", kind: "FWD"} })
	return errors.Join(err, err2)
}

// A hookedChain is a chain of ours and the built-in chain that jumps to it.
// Without rules it is wanted gone.
type hookedChain struct {
	table, hook, kind string
	rules             []string
}

// name is the same exactly when the rules are.
func (c hookedChain) name() string {
	sum := sha256.Sum256([]byte(strings.Join(c.rules, "\n")))
	return fmt.Sprintf("%s%s-%x", chainPrefix, c.kind, sum[:6])
}

func (c hookedChain) prefix() string { return chainPrefix + c.kind + "-" }

// masqueradeChain has one rule per listed range, the most specific first.
func masqueradeChain(m Masquerade, is4 bool) hookedChain {
	c := hookedChain{table: "nat", hook: "POSTROUTING", kind: "MASQ"}
	pods := ofFamily(m.PodCIDRs, is4)
	if len(pods) == 0 {
		return c
	}
	c.rules = []string{"-o " + m.Bridge + " -j RETURN"}
	exceptions := ofFamily(m.Exceptions, is4)
	listed := append(ofFamily(m.Keep, is4), exceptions...)
	slices.SortFunc(listed, byLength)
	for _, dst := range slices.Compact(listed) {
		if slices.Contains(exceptions, dst) {
			c.rules = append(c.rules, masqueradeFrom(pods, "-d "+dst.String())...)
		}
		c.rules = append(c.rules, "-d "+dst.String()+" -j RETURN")
	}
	c.rules = append(c.rules, masqueradeFrom(pods, "")...)
	return c
}

func masqueradeFrom(pods []netip.Prefix, match string) []string {
	var rules []string
	for _, p := range pods {
		rules = append(rules, strings.TrimSpace(match+" -s "+p.String())+" -j MASQUERADE --random-fully")
	}
	return rules
}

func (t *IPTables) ensure(want func(is4 bool) hookedChain) (changed bool, err error) {
	for _, family := range []*iptables.IPTables{t.v4, t.v6} {
		if family == nil {
			continue
		}
		c, e := ensureChain(family, want(family.Proto() == iptables.ProtocolIPv4))
		changed, err = changed || c, errors.Join(err, e)
	}
	return changed, err
}

// ensureChain makes the chain, jumps to it first of all rules, and drops what
// older chains of this kind there are.
func ensureChain(ipt *iptables.IPTables, c hookedChain) (changed bool, err error) {
	chains, err := ipt.ListChains(c.table)
	if err != nil {
		return false, fmt.Errorf("list chains of iptables table %s: %w", c.table, err)
	}
	if len(c.rules) > 0 {
		if changed, err = fillAndJump(ipt, c, slices.Contains(chains, c.name())); err != nil {
			return changed, fmt.Errorf("iptables chain %s: %w", c.name(), err)
		}
	}
	for _, old := range chains {
		if !strings.HasPrefix(old, c.prefix()) || len(c.rules) > 0 && old == c.name() {
			continue
		}
		changed = true
		if err := dropChain(ipt, c, old); err != nil {
			return changed, fmt.Errorf("drop iptables chain %s: %w", old, err)
		}
	}
	return changed, nil
}

func fillAndJump(ipt *iptables.IPTables, c hookedChain, exists bool) (changed bool, err error) {
	if !exists {
		if err := ipt.NewChain(c.table, c.name()); err != nil {
			return false, err
		}
	}
	got, err := ipt.List(c.table, c.name())
	if err != nil {
		return false, err
	}
	if len(got)-1 != len(c.rules) { // the first line declares the chain
		changed = true
		if err := fill(ipt, c); err != nil {
			return true, err
		}
	}
	jumped, err := ipt.Exists(c.table, c.hook, "-j", c.name())
	if err != nil || jumped {
		return changed, err
	}
	return true, ipt.Insert(c.table, c.hook, 1, "-j", c.name())
}

// fill writes a chain's rules anew. It is jumped to already only when somebody
// took rules away, and then every rule that comes back is an improvement.
func fill(ipt *iptables.IPTables, c hookedChain) error {
	if err := ipt.ClearChain(c.table, c.name()); err != nil {
		return err
	}
	for _, rule := range c.rules {
		if err := ipt.Append(c.table, c.name(), strings.Fields(rule)...); err != nil {
			return err
		}
	}
	return nil
}

func dropChain(ipt *iptables.IPTables, c hookedChain, name string) error {
	if err := ipt.DeleteIfExists(c.table, c.hook, "-j", name); err != nil {
		return err
	}
	return ipt.ClearAndDeleteChain(c.table, name)
}
