// Rule files: validation with line and column for every mistake (schema/rules.schema.json says the same for editors).
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "runtime/base/json.h"
#include "runtime/base/settings.h"
#include "runtime/kde/catalog/catalog.h"
#include "runtime/kde/catalog/native_ops.h"
#include "runtime/kde/query.h"
#include "runtime/kde/rules/positions.h"
#include "runtime/kde/rules/rule.h"

namespace flagos::kde {
namespace {

constexpr size_t kMaxRules = 10000;

std::string inQuotes(std::string_view s) { return "'" + std::string(s) + "'"; }
std::string didYouMean(const std::string& near) { return near.empty() ? "" : "; did you mean " + near + "?"; }
std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view from, Level level) : text_(text), from_(from), level_(level) {}

  RuleFile run() {
    auto parsed = parseJson(text_, from_, {4u << 20, 16});
    if (!parsed) { file_.errors.push_back(parsed.error()); return std::move(file_); }
    places_ = JsonPositions::of(text_);
    for (const auto& [pointer, place] : places_.duplicates())
      error(place, "the key " + inQuotes(pointer.substr(pointer.rfind('/') + 1)) + " is given twice");
    document(*parsed);
    if (!file_.errors.empty()) file_.rules.clear();
    return std::move(file_);
  }

 private:
  std::string_view text_, from_;
  Level level_;
  JsonPositions places_;
  RuleFile file_;

  void error(LineColumn at, std::string what) {
    if (file_.errors.size() >= 100) return;   // a wrong kind of file would repeat itself
    Error e = fail(std::move(what), {}, Exit::broken_input);
    e.where = std::string(from_) + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
    file_.errors.push_back(std::move(e));
  }
  void errorAt(const std::string& pointer, std::string what) { error(places_.value(pointer), std::move(what)); }
  void errorAtKey(const std::string& pointer, std::string what) { error(places_.key(pointer), std::move(what)); }

  void unknownKey(const std::string& pointer, std::string_view key, const std::vector<std::string>& allowed) {
    std::string list;
    for (const auto& a : allowed) list += (list.empty() ? "" : ", ") + a;
    const std::string near = nearest(key, allowed);
    errorAtKey(pointer, "unknown key " + inQuotes(key) + (near.empty() ? "; the keys are " + list : didYouMean(near)));
  }

  void document(const Json& doc) {
    if (!doc.is_object()) return errorAt("", "expected an object with \"version\" and \"rules\"");
    for (const auto& [key, value] : doc.items())
      if (key != "version" && key != "rules" && key != "$schema" && key != "comment")
        unknownKey(pointerStep(key), key, {"version", "rules", "$schema", "comment"});
    if (!doc.contains("version")) errorAt("", "\"version\": 1 is missing");
    else if (doc["version"] != Json(1)) errorAt("/version", "version " + dump(doc["version"]) + " is not known; this program reads version 1");
    if (!doc.contains("rules")) return errorAt("", "\"rules\" is missing");
    const Json& rules = doc["rules"];
    if (!rules.is_array()) return errorAt("/rules", "\"rules\" must be a list");
    if (rules.size() > kMaxRules) return errorAt("/rules", "more than " + std::to_string(kMaxRules) + " rules");
    for (size_t i = 0; i < rules.size(); ++i) rule(rules[i], "/rules/" + std::to_string(i), i);
  }

  void rule(const Json& j, const std::string& at, size_t index) {
    static const std::vector<std::string> keys{"name", "op", "when", "use", "prefer", "forbid", "comment"};
    if (!j.is_object()) return errorAt(at, "a rule must be an object");
    Rule r;
    r.level = level_;
    r.name = "#" + std::to_string(index + 1);
    r.from = level_ == Level::builtin ? "built-in" : std::string(from_) + ":" + std::to_string(places_.value(at).line);
    std::string op = "*";
    int actions = 0;
    LineColumn last{0, 0};
    std::string target_at;
    for (const auto& [key, value] : j.items()) {
      const std::string p = at + pointerStep(key);
      if (key == "comment") continue;
      if (key == "when") continue;   // after op, whose family it needs
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) { unknownKey(p, key, keys); continue; }
      if (!value.is_string() || value.get_ref<const std::string&>().empty()) { errorAt(p, inQuotes(key) + " must be a text"); continue; }
      const std::string text = value;
      if (key == "name") r.name = text;
      if (key == "op") op = text;
      if (key == "use" || key == "prefer" || key == "forbid") {
        ++actions;
        const LineColumn place = places_.key(p);
        if (place.line > last.line || (place.line == last.line && place.column > last.column)) last = place;
        r.action = key == "use" ? Action::use : key == "prefer" ? Action::prefer : Action::forbid;
        r.target = text;
        target_at = p;
        target(r, text, p);
      }
    }
    if (actions > 1) error(last, "a rule has one of use, prefer, forbid");
    if (!actions && !j.contains("use") && !j.contains("prefer") && !j.contains("forbid"))
      errorAt(at, "a rule needs one of use, prefer, forbid");
    const bool glob = op.find_first_of("*?") != std::string::npos;
    const size_t mistakes = file_.errors.size();
    if (!glob && op.find("::") == std::string::npos)
      errorAt(at + "/op", inQuotes(op) + " is no operator name; did you mean aten::" + op + "?");
    else if (!glob)
      if (auto known = checkOp(op); !known) {
        const std::string near = nearestOp(op);
        errorAt(at + "/op", known.error().what + (near.empty() ? "" : didYouMean(near)));
      }
    // Said only where both names are known: a misspelled one is the mistake to name.
    if (file_.errors.size() == mistakes && actions == 1)
      if (const std::string why = whyNoFit(op, r.targets); !why.empty())
        errorAt(target_at, why + (r.action == Action::forbid ? "" : didYouMean(sameForFamily(op, r.targets.front()))));
    r.ops = withComposites(op);
    if (j.contains("when")) when(r, j["when"], at + "/when", glob ? "" : op);
    file_.rules.push_back(std::move(r));
  }

  void target(Rule& r, const std::string& text, const std::string& at) {
    const auto all = candidates();
    for (size_t i = 0; i < all.size(); ++i)
      if (r.action == Action::forbid ? globMatches(text, all[i].name) : text == all[i].name)
        r.targets.push_back(static_cast<CandidateId>(i + 1));
    if (r.targets.empty()) errorAt(at, "no candidate is named " + inQuotes(text) + didYouMean(nearestCandidate(text)));
  }

  void when(Rule& r, const Json& j, const std::string& at, const std::string& op) {
    if (!j.is_object()) return errorAt(at, "\"when\" must be an object of field and condition");
    const Family family = op.empty() ? Family::other : familyOf(op);
    for (const auto& [key, value] : j.items()) {
      const std::string p = at + pointerStep(key);
      const FieldInfo* field = findField(key);
      if (!field) {
        std::vector<std::string> names;
        for (int i = 0; i < static_cast<int>(Field::count_); ++i) names.emplace_back(fieldInfo(static_cast<Field>(i)).name);
        const std::string near = key.size() < 2 ? std::string() : nearest(key, names);   // any letter is near any other
        errorAtKey(p, "unknown field " + inQuotes(key) + (near.empty() ? "; `flagos explain --fields` lists them" : didYouMean(near)));
        continue;
      }
      if (family != Family::other && !familyHas(family, field->field)) {
        std::string own;
        for (const FieldUse& u : familyFields(family)) own += (own.empty() ? "" : " ") + std::string(fieldInfo(u.field).name);
        errorAtKey(p, op + " (family " + std::string(familyName(family)) + ") has no operand " + inQuotes(key) +
                          (own.empty() ? "" : "; its operands are " + own));
        continue;
      }
      Predicate pred;
      pred.field = field->field;
      const size_t before = file_.errors.size();
      if (value.is_array()) {
        if (value.empty()) errorAt(p, "an empty list never holds");
        for (size_t i = 0; i < value.size(); ++i) test(pred, *field, value[i], p + "/" + std::to_string(i));
      } else {
        test(pred, *field, value, p);
      }
      if (file_.errors.size() == before) r.when.push_back(std::move(pred));
    }
  }

  void add(Predicate& pred, const FieldInfo& field, Test t, std::string_view shown) {
    static constexpr std::string_view ops[] = {"=", "!=", "<", "<=", ">", ">="};
    if (pred.any.empty()) {
      pred.text = std::string(field.name) + " " + std::string(ops[static_cast<size_t>(t.compare)]) + " " + std::string(shown);
    } else {
      pred.text += " or ";
      if (t.compare != Compare::eq) pred.text += std::string(ops[static_cast<size_t>(t.compare)]) + " ";
      pred.text += shown;
    }
    pred.any.push_back(std::move(t));
  }

  void test(Predicate& pred, const FieldInfo& field, const Json& v, const std::string& at) {
    Test t;
    const std::string name = inQuotes(field.name);
    if (v.is_boolean()) {
      if (field.type != FieldType::boolean) return errorAt(at, name + " is not true or false");
      t.number = v.get<bool>();
      return add(pred, field, t, t.number ? "true" : "false");
    }
    if (v.is_number()) {
      if (field.type != FieldType::integer && field.type != FieldType::bytes) return errorAt(at, name + " is not a number");
      t.number = v.get<double>();
      return add(pred, field, t, dump(v));
    }
    if (!v.is_string()) return errorAt(at, "a condition is a text, a number, true, false, or a list of these");
    std::string_view s = v.get_ref<const std::string&>();
    struct Sign { std::string_view text; Compare compare; };
    static constexpr Sign signs[] = {{"<=", Compare::le}, {">=", Compare::ge}, {"!=", Compare::ne}, {"<", Compare::lt}, {">", Compare::gt}};
    bool compared = false;
    for (const Sign& sign : signs) {
      if (s.substr(0, sign.text.size()) != sign.text) continue;
      t.compare = sign.compare;
      s.remove_prefix(sign.text.size());
      compared = true;
      break;
    }
    s = trimmed(s);
    if (s.empty()) return errorAt(at, compared ? "a value is missing after the comparison" : "the condition is empty");
    switch (field.type) {
      case FieldType::boolean: {
        if (s != "true" && s != "false") return errorAt(at, name + " is true or false, not " + inQuotes(s));
        if (compared && t.compare != Compare::ne) return errorAt(at, name + " has no order; only != compares it");
        t.number = s == "true";
        return add(pred, field, t, s);
      }
      case FieldType::integer:
      case FieldType::bytes: return number(pred, field, t, s, at, compared);
      default: break;
    }
    if (compared && t.compare != Compare::ne) return errorAt(at, name + " is a text; only != compares it");
    t.text = std::string(s);
    if (field.type == FieldType::dtype) {
      const auto dtype = dtypeFromName(s);
      if (!dtype) {
        std::vector<std::string> names;
        for (unsigned i = 0; i < static_cast<unsigned>(DType::other); ++i) names.emplace_back(dtypeName(static_cast<DType>(i)));
        return errorAt(at, inQuotes(s) + " is no dtype" + didYouMean(nearest(s, names)));
      }
      t.text = std::string(dtypeName(*dtype));
    }
    if (field.type == FieldType::kind) {
      const std::vector<std::string> kinds{"discrete", "npu", "integrated", "other", "cpu"};
      if (std::find(kinds.begin(), kinds.end(), t.text) == kinds.end()) {
        const std::string near = nearest(s, kinds);
        return errorAt(at, inQuotes(s) + " is no device kind" + (near.empty() ? "; they are discrete, npu, integrated, other, cpu" : didYouMean(near)));
      }
    }
    const std::string shown = t.text;
    add(pred, field, std::move(t), shown);
  }

  void number(Predicate& pred, const FieldInfo& field, Test t, std::string_view s, const std::string& at, bool compared) {
    const std::string text(s);
    char* end = nullptr;
    t.number = std::strtod(text.c_str(), &end);
    const std::string_view unit = trimmed(std::string_view(end));
    double scale = unit.empty() ? 1 : 0;
    if (field.type == FieldType::bytes) {
      if (unit == "KiB") scale = 1024.0;
      if (unit == "MiB") scale = 1024.0 * 1024;
      if (unit == "GiB") scale = 1024.0 * 1024 * 1024;
      if (unit == "B") scale = 1;
    }
    if (end == text.c_str() || scale == 0 || !std::isfinite(t.number)) {
      const bool other_order = !compared && s.find_first_of("<>=") != std::string_view::npos;
      return errorAt(at, inQuotes(field.name) + " is a number, and " + inQuotes(s) + " is none" +
                             (other_order ? "; a comparison begins with <, <=, >, >= or !=" : ""));
    }
    t.number *= scale;
    add(pred, field, t, text);
  }
};

}  // namespace

RuleFile parseRules(std::string_view json_text, std::string_view from, Level level) {
  return Parser(json_text, from, level).run();
}

}  // namespace flagos::kde
