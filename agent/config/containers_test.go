package config

// Tests of the rules for containers.

import (
	"strings"
	"testing"
)

func TestContainerRules(t *testing.T) {
	c := Default(user(0, nil))
	err := c.ReadFile(write(t, `
unasked_gpu = "default"

[[containers]]
namespace = "team-*"
image = "docker.io/acme/*:prod"
memory = "4GiB"
memory_max = "8GiB"
swap = "0"
weight = "0.5"

[[containers]]
weight_max = "2"
swap_max = "16GiB"
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Rules) != 2 || c.UnaskedGPU != UnaskedDefault {
		t.Fatalf("%+v", c)
	}
	first, second := c.Rules[0], c.Rules[1]
	if *first.Memory != 4<<30 || *first.MemoryMax != 8<<30 || *first.Swap != 0 || *first.Weight != 0.5 ||
		first.SwapMax != nil || first.WeightMax != nil {
		t.Errorf("%+v", first)
	}
	if *second.WeightMax != 2 || *second.SwapMax != 16<<30 || second.Memory != nil {
		t.Errorf("%+v", second)
	}
	for _, test := range []struct {
		namespace, image string
		want             bool
	}{
		{"team-a", "docker.io/acme/llm/serve:prod", true},
		{"team-", "docker.io/acme/:prod", true},
		{"a-team-a", "docker.io/acme/llm:prod", false},
		{"team-a", "docker.io/acme/llm:prod2", false},
		{"team-a", "dockerXio/acme/llm:prod", false},
		{"", "", false},
	} {
		if got := first.Matches(test.namespace, test.image); got != test.want {
			t.Errorf("%q, %q: %v", test.namespace, test.image, got)
		}
		if !second.Matches(test.namespace, test.image) {
			t.Errorf("%q, %q: a rule without patterns is for all", test.namespace, test.image)
		}
	}
}

func TestContainerRulesNameTheMistake(t *testing.T) {
	for text, want := range map[string]string{
		"[[containers]]\nmemory = \"1GiB\"\n[[containers]]\n\nmemory = \"x\"\n": `:5: containers: memory: "x" is not a size`,
		"\n[[containers]]\nmemory_max = \"0\"\n":                                `:3: containers: memory_max: "0": want a size above 0`,
		"[[containers]]\nswap_max = \"-1\"\n":                                   `:2: containers: swap_max: "-1" is negative`,
		"[[containers]]\nweight = \"0\"\n":                                      `:2: containers: weight: "0" is no weight: want a number from 0.001 to 1000`,
		"[[containers]]\nweight = \"1e30\"\n":                                   `:2: containers: weight: "1e30" is no weight: want`,
		"[[containers]]\nweight = \"-2\"\n":                                     `:2: containers: weight: "-2" is no weight: want`,
		"[[containers]]\nweight_max = \"NaN\"\n":                                `:2: containers: weight_max: "NaN" is no weight: want`,
		"[[containers]]\nweight = 2\n":                                          `:2: containers: weight: want a number from 0.001 to 1000 in quotes, such as "2"`,
		"[[containers]]\nweight_max = nan\n":                                    `:2: containers: weight_max: want a number from 0.001 to 1000 in quotes`,
		"[[containers]]\n\nmemory_max = 5\n":                                    `:3: containers: memory_max: want a size in quotes, such as "8GiB"`,
		"[[containers]]\nimage = true\n":                                        `:2: containers: image: want a pattern in quotes`,
		"[[containers]]\nnamespace = \"\"\n":                                    `:2: containers: namespace: "": want a pattern`,
		"[[containers]]\nimage = \"\"\n":                                        `:2: containers: image: "": want a pattern`,
		"containers = [{memory = \"x\"}]\n":                                     `:1: containers: memory: "x" is not a size`,
		"[[containers]]\nmemroy = \"1\"\n":                                      `:2: unknown key "containers.memroy"; accepted: `,
	} {
		c := Default(user(0, nil))
		err := c.ReadFile(write(t, text))
		if err == nil || !strings.Contains(err.Error(), "weir.toml"+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v\nwant one line with %q", text, err, want)
		}
	}
	c := Default(user(0, nil))
	if err := c.ReadFile(write(t, strings.Repeat("[[containers]]\n", rulesMax+1))); err == nil {
		t.Error("more rules than there may be were taken")
	}
}

func TestPattern(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a/b", true}, {"a", "a", true}, {"a", "ab", false},
		{"a*", "a", true}, {"a*a", "a", false}, {"a*a", "aa", true}, {"*a*", "bab", true}, {"*a*b*", "ba", false},
		{"*ab", "abab", true}, {"a*b*c", "abbc", true}, {"a*bc*c", "abcc", true}, {"**", "x", true},
	} {
		if got := Pattern(test.pattern).Matches(test.text); got != test.want {
			t.Errorf("%q matches %q: %v", test.pattern, test.text, got)
		}
	}
}
