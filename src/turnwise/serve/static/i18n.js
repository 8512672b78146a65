// The words of the page, in English and Chinese. A key that is missing in Chinese is shown in English.
const WORDS = {
  en: {
    skip: "Go to the result", share: "Copy link", copied: "Copied", theme: "Light or dark", input: "Input", result: "Result", views: "Views",
    loading: "Loading the engine …", working: "Working …", offline: "runs in your browser; nothing is sent",
    template: "Template", entry: "Model or entry", search: "search, or a model id", source: "Source", paste: "Paste a template of any dialect", dialect: "Dialect", guess: "guess", edited: "edited",
    reset: "Reset", drop: "Drop a template, a tokenizer.json or a model folder anywhere on the page.", open: "Open file …",
    messages: "Messages", bubbles: "Bubbles", json: "JSON", addMessage: "Add message", role: "Role", content: "Content",
    reasoning: "Reasoning", calls: "Tool calls", up: "Move up", down: "Move down", remove: "Remove", callId: "Tool call id", name: "Name",
    tools: "Tools", exampleTool: "Example", options: "Options", prompt: "Generation prompt", continued: "Continue the last message",
    lateSystem: "Late system texts", lateUsual: "as the template allows",
    kwargs: "Template options (JSON)", tokenizer: "Tokenizer", shipped: "turnwise (small, ships with the package)", badJson: "This is not JSON",
    needList: "a list of objects is needed", needObject: "an object is needed", file: "file",
    tabText: "Text", tabTokens: "Tokens", tabLoss: "Loss", tabReply: "Reply", tabGrammar: "Grammar", tabChecks: "Checks",
    tabStability: "Stability", tabDiff: "Diff", tabConvert: "Convert",
    textHelp: "Grey is the template. Each colour is a message. Click a character, or use ← and →, to see where it comes from.",
    origin: "Origin", fromTemplate: "template", fromField: "message field", fromComputed: "computed from", character: "character", changes: "What was changed to fit",
    line: "line {line}", place: "line {line}, column {column}", fromInput: "tools and options",
    tokensHelp: "Framed tokens are control tokens. Struck ones were written by a message and are encoded as plain text.",
    control: "control token", controls: "control tokens", defused: "kept as text", count: "tokens", characters: "characters",
    trainOn: "Train on", trained: "trained", untrained: "Not trained", lossHelp: "Green tokens are trained on; the others get -100.",
    reply: "Reply of the model", replyHint: "Paste what the model wrote", stream: "Stream", sample: "Sample", events: "Events", message: "Message", stop: "Stop",
    finish: "Finish reason", nothing: "Nothing yet.", replyParts: "Parts",
    part: "Part", text: "Text", choice: "Tool choice", exports: "Exports", copy: "Copy", noTools: "Add tools to see grammars of calls.",
    findings: "Findings", noFindings: "No findings.", fix: "Fix", example: "Example", capabilities: "Capabilities", stops: "Stop texts", variables: "Variables", ids: "ids",
    stabilityHelp: "Does text that was written stay the same when the conversation grows? Only then can a cache be used, and a mask be trusted.",
    appending: "Appended", earlier: "Earlier text", conversations: "Conversations",
    other: "The other template: name of an entry, or source", thisTemplate: "this template", otherTemplate: "the other template", same: "No difference found", differ: "They differ on this conversation", tried: "conversations tried", useWitness: "Use this conversation",
    to: "To", download: "Download", without: "Leave out (names, separated by commas)", leaveOut: "Leave out: {names}",
    added: "Tokenizer added", noTokenizerHere: "For true ids, start the server with a folder that has the tokenizer: turnwise serve FOLDER",
    unknownFile: "This file is neither a template nor a tokenizer", feature: "Feature", state: "State", seen: "Seen",
    serverSilent: "the server does not answer", isItRunning: "Is `turnwise serve` still running?", notJson: "the server's answer is not JSON (status {status})",
    noEntries: "the list of entries could not be loaded", loadAgain: "Load the page again.", engineStopped: "the engine stopped: {reason}",
    notLoaded: "it could not be loaded", tooLong: "this takes too long and was ended",
    error: "error", warning: "warning", note: "note",
    choose: "choose …", served: "Served here", others: "Others", noEntry: "No entry has “{name}” in its name. Enter looks for a model of this id.",
    example_chat: "Chat", example_tools: "Tool call", example_parallel: "Parallel calls", example_thinking: "Thinking", example_images: "Image", example_attack: "Attack",
    thinking: "Thinking", usual: "default", on: "on", off: "off",
    hubOff: "Allow fetching templates and tokenizers from {host}", hubOn: "May fetch from {host}: type the id of a model above", hubHint: "Allow fetching from {host} to try the model's own files.",
    fetching: "Fetching {name} from {host} …", fetched: "{name}: template and tokenizer of {host}", notFound: "{host} has no files of {name} that can be read here", online: "runs in your browser; may fetch from {host}",
    automatic: "automatic: {name}", counting: "counting tokens …", price: "Price of a million tokens in dollars", perMillion: "per million",
    firstPossible: "first that is possible", leftOut: "Left out, because this dialect or its writer has no way to say it: {names}",
  },
  zh: {
    skip: "跳到结果", share: "复制链接", copied: "已复制", theme: "浅色或深色", input: "输入", result: "结果", views: "视图",
    loading: "正在加载引擎…", working: "计算中…", offline: "在浏览器里运行，不发送任何数据",
    template: "模板", entry: "模型或内置模板", search: "搜索，或输入模型 id", source: "源码", paste: "粘贴任意格式的模板", dialect: "格式", guess: "自动识别", edited: "已修改",
    reset: "还原", drop: "可把模板、tokenizer.json 或模型文件夹拖到页面任意位置。", open: "打开文件…",
    messages: "消息", bubbles: "气泡", json: "JSON", addMessage: "添加消息", role: "角色", content: "内容",
    reasoning: "思考", calls: "工具调用", up: "上移", down: "下移", remove: "删除", callId: "工具调用 id", name: "名称",
    tools: "工具", exampleTool: "示例", options: "选项", prompt: "添加助手开头", continued: "续写最后一条消息",
    lateSystem: "后置 system 文本", lateUsual: "由模板决定",
    kwargs: "模板选项（JSON）", tokenizer: "分词器", shipped: "turnwise（软件包附带的小型分词器）", badJson: "不是合法的 JSON",
    needList: "需要由对象组成的列表", needObject: "需要一个对象", file: "文件",
    tabText: "文本", tabTokens: "Token", tabLoss: "损失", tabReply: "回复", tabGrammar: "语法", tabChecks: "检查",
    tabStability: "稳定性", tabDiff: "比较", tabConvert: "转换",
    textHelp: "灰色是模板，每种颜色是一条消息。点击任意字符，或按 ← →，查看它的来源。",
    origin: "来源", fromTemplate: "模板", fromField: "消息字段", fromComputed: "计算自", character: "字符", changes: "为适配所做的改动",
    line: "第 {line} 行", place: "第 {line} 行第 {column} 列", fromInput: "工具与选项",
    tokensHelp: "带框的是控制 token。带删除线的是消息里伪造的控制 token，已按普通文本编码。",
    control: "控制 token", controls: "个控制 token", defused: "已按普通文本编码", count: "个 token", characters: "个字符",
    trainOn: "训练范围", trained: "参与训练", untrained: "不参与训练", lossHelp: "绿色的 token 参与训练，其余的标签为 -100。",
    reply: "模型的回复", replyHint: "粘贴模型输出的文本", stream: "流式", sample: "示例", events: "事件", message: "消息", stop: "停止符",
    finish: "结束原因", nothing: "还没有内容。", replyParts: "各部分",
    part: "部分", text: "文本", choice: "工具选择", exports: "导出", copy: "复制", noTools: "添加工具后可查看工具调用的语法。",
    findings: "检查出的问题", noFindings: "没有发现问题。", fix: "修复", example: "示例", capabilities: "支持情况", stops: "停止符", variables: "变量", ids: "id",
    stabilityHelp: "对话变长时，前面已写出的文本是否保持不变？只有保持不变，缓存才能复用，掩码才可信。",
    appending: "追加的内容", earlier: "先前的文本", conversations: "对话数",
    other: "另一个模板：内置模板的名称或源码", thisTemplate: "此模板", otherTemplate: "另一个模板", same: "没有发现差异", differ: "两个模板在这段对话上结果不同", tried: "段对话已比较", useWitness: "使用这段对话",
    to: "目标", download: "下载", without: "省略（名称，用逗号分隔）", leaveOut: "省略：{names}",
    added: "已添加分词器", noTokenizerHere: "如需真实的 id，请用含有分词器的文件夹启动服务：turnwise serve FOLDER",
    unknownFile: "这个文件既不是模板也不是分词器", feature: "特性", state: "状态", seen: "实际输出",
    serverSilent: "服务器没有响应", isItRunning: "`turnwise serve` 还在运行吗？", notJson: "服务器的响应不是 JSON（状态码 {status}）",
    noEntries: "无法加载内置模板列表", loadAgain: "请重新加载页面。", engineStopped: "引擎已停止：{reason}",
    notLoaded: "无法加载", tooLong: "耗时过长，已终止",
    error: "错误", warning: "警告", note: "提示",
    choose: "请选择…", served: "本服务的模型", others: "其他", noEntry: "没有名称包含“{name}”的内置模板。按回车可按模型 id 查找。",
    example_chat: "对话", example_tools: "工具调用", example_parallel: "并行调用", example_thinking: "思考", example_images: "图片", example_attack: "注入攻击",
    thinking: "思考", usual: "默认", on: "开", off: "关",
    hubOff: "允许从 {host} 获取模板和分词器", hubOn: "可从 {host} 获取：在上面输入模型 id", hubHint: "允许从 {host} 获取后，可使用该模型自己的文件。",
    fetching: "正在从 {host} 获取 {name}…", fetched: "{name}：模板和分词器来自 {host}", notFound: "{host} 上没有 {name} 的可用文件", online: "在浏览器里运行，可从 {host} 获取文件",
    automatic: "自动：{name}", counting: "正在统计 token…", price: "每百万 token 的价格（美元）", perMillion: "每百万",
    firstPossible: "第一个可行的格式", leftOut: "目标格式无法表达以下内容，已省略：{names}",
  },
};

let language = "en";

export function setLanguage(name) {
  language = name === "zh" ? "zh" : "en";
  document.documentElement.lang = language;
  for (const node of document.querySelectorAll("[data-i18n]")) node.textContent = t(node.dataset.i18n);
  for (const node of document.querySelectorAll("[data-i18n-label]")) node.setAttribute("aria-label", t(node.dataset.i18nLabel));
}

export function getLanguage() {
  return language;
}

// t("line", {line: 3}) -> "line 3"
export function t(key, values = {}) {
  const text = WORDS[language][key] ?? WORDS.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}
